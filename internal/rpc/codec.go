package rpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// RawEncoder is a message to send that encodes itself, so that large bytes in it are not copied through protobuf
// code. On the wire it is what its .proto says.
type RawEncoder interface {
	// EncodeRaw returns the message; gRPC frees the buffers when they are written.
	EncodeRaw() (mem.BufferSlice, error)
}

// RawDecoder is a received message that decodes itself.
type RawDecoder interface {
	// DecodeRaw reads a message. The data is valid during the call.
	DecodeRaw(data mem.BufferSlice) error
}

// codec lets raw messages do that, and encodes everything else as protobuf.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec for services that have raw messages.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal returns the bytes of a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(RawEncoder); ok {
		return r.EncodeRaw()
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if r, ok := v.(RawDecoder); ok {
		return r.DecodeRaw(data)
	}
	return c.CodecV2.Unmarshal(data, v)
}
