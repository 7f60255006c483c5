package grpclink

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	brokerv1 "github.com/perigee-mq/perigee/api/perigee/broker/v1"
)

// A packet is the message that protobuf would make of it.
func TestPacketIsProtobuf(t *testing.T) {
	c := newCodec()
	for _, n := range []int{1, 127, 128, 1500, 256 << 10} {
		want := bytes.Repeat([]byte{7}, n)
		data, err := c.Marshal(&outbound{bytes.Clone(want)})
		require.NoError(t, err)
		wire := data.Materialize()
		var m brokerv1.LinkRequest
		require.NoError(t, proto.Unmarshal(wire, &m))
		require.Equal(t, want, m.GetFrames())

		in := inbound{buf: make([]byte, 0, 200)}
		require.NoError(t, c.Unmarshal(data, &in))
		require.Equal(t, want, in.frames)
		data.Free()
	}
	data, err := c.Marshal(&brokerv1.LinkRequest{Hello: &brokerv1.LinkHello{Version: 1}})
	require.NoError(t, err)
	require.Error(t, c.Unmarshal(data, &inbound{}), "a hello is no packet")
	var m brokerv1.LinkRequest
	require.NoError(t, c.Unmarshal(data, &m))
	require.Equal(t, uint32(1), m.GetHello().GetVersion())
}

// FuzzPacket: what is taken for a packet is one for protobuf, too.
func FuzzPacket(f *testing.F) {
	f.Add([]byte{0x12, 3, 1, 2, 3})
	f.Add([]byte{0x12, 0xFF, 0xFF, 3})
	f.Add([]byte{0x0A, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var in inbound
		if newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &in) != nil {
			return
		}
		var m brokerv1.LinkResponse
		if err := proto.Unmarshal(b, &m); err != nil || !bytes.Equal(m.GetFrames(), in.frames) {
			t.Fatalf("%x: %v", b, err)
		}
	})
}
