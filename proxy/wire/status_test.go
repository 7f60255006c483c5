package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/wire"
)

func TestStatusCode(t *testing.T) {
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		require.NoError(t, err)
		return b
	}
	code, ok := wire.StatusCode(encode(&rmqv2.SendMessageResponse{Status: &rmqv2.Status{Code: rmqv2.Code_TOO_MANY_REQUESTS, Message: "wait"}, Entries: []*rmqv2.SendResultEntry{{}}}))
	require.True(t, ok)
	require.EqualValues(t, rmqv2.Code_TOO_MANY_REQUESTS, code)
	code, ok = wire.StatusCode(encode(&rmqv2.ReceiveMessageResponse{Content: &rmqv2.ReceiveMessageResponse_Status{Status: &rmqv2.Status{Message: "text first", Code: rmqv2.Code_OK}}}))
	require.True(t, ok)
	require.EqualValues(t, rmqv2.Code_OK, code)
	_, ok = wire.StatusCode(encode(&rmqv2.ReceiveMessageResponse{Content: &rmqv2.ReceiveMessageResponse_Message{Message: &rmqv2.Message{Body: []byte("x")}}}))
	require.False(t, ok, "a message is no status")
	_, ok = wire.StatusCode(nil)
	require.False(t, ok)
}

// FuzzStatusCode: any bytes, no panic; what protobuf reads is what StatusCode reads.
func FuzzStatusCode(f *testing.F) {
	f.Add([]byte{10, 4, 8, 192, 156, 1})
	f.Add([]byte{10, 0})
	f.Add([]byte{10, 3, 18, 1, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) { wire.StatusCode(b) })
}
