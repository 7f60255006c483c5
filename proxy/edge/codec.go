package edge

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// frame is one message as bytes. A received one holds a reference to the transport's buffer.
type frame struct {
	data []byte
	held mem.Buffer // nil: data is ours
}

// take makes the frame hold what was received. A request in one piece is not copied.
func (f *frame) take(data mem.BufferSlice) {
	f.free()
	f.held = data.MaterializeToBuffer(mem.DefaultBufferPool())
	f.data = f.held.ReadOnlyData()
}

// free gives the buffer back. The bytes must not be used afterwards.
func (f *frame) free() {
	if f.held != nil {
		f.held.Free()
	}
	f.data, f.held = nil, nil
}

// codec hands frames through and encodes everything else as protobuf.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal returns the bytes of a message.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.take(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}
