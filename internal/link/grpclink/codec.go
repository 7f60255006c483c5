package grpclink

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// framesField is the number of "frames" in LinkRequest and LinkResponse.
const framesField = 2

// outbound is a packet to send: a message with nothing but frames.
type outbound struct{ packet []byte }

// inbound is a received packet; its buffer is used again for the next one.
type inbound struct {
	buf    []byte
	frames []byte
}

// codec passes packets; everything else is as in internal/rpc.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{rpc.NewCodec()} }

// Marshal returns the bytes of a message; those of a packet are not copied.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	o, ok := v.(*outbound)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	head := protowire.AppendTag(make([]byte, 0, 8), framesField, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(o.packet)))
	return mem.BufferSlice{mem.SliceBuffer(head), mem.NewBuffer(&o.packet, recycler{})}, nil
}

// recycler gives packets back to the link when gRPC has written them.
type recycler struct{}

func (recycler) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}

func (recycler) Put(b *[]byte) { link.Recycle(*b) }

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	in, ok := v.(*inbound)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	n := data.Len()
	if cap(in.buf) < n {
		in.buf = make([]byte, n, min(2*n, messageMax))
	}
	in.buf = in.buf[:n]
	data.CopyTo(in.buf)
	return in.parse()
}

// parse finds the frames, the only field that a packet may have.
func (in *inbound) parse() error {
	num, kind, n := protowire.ConsumeTag(in.buf)
	if n < 0 || num != framesField || kind != protowire.BytesType {
		return mqerr.New(mqerr.Invalid, "a packet of the link that does not begin with frames")
	}
	frames, m := protowire.ConsumeBytes(in.buf[n:])
	if m < 0 || n+m != len(in.buf) {
		return mqerr.New(mqerr.Invalid, "a packet of the link with more than frames, or less")
	}
	in.frames = frames
	return nil
}
