package wire

import (
	"math/rand/v2"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// randomMessage fills a message with random values, some fields left out.
func randomMessage(rng *rand.Rand, m proto.Message) proto.Message {
	fill(rng, m.ProtoReflect(), 0)
	return m
}

func fill(rng *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if rng.IntN(3) == 0 || depth > 6 {
			continue
		}
		switch {
		case fd.IsMap():
			for range rng.IntN(4) {
				m.Mutable(fd).Map().Set(scalar(rng, fd.MapKey()).MapKey(), scalar(rng, fd.MapValue()))
			}
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range rng.IntN(4) {
				if fd.Message() == nil {
					list.Append(scalar(rng, fd))
					continue
				}
				fill(rng, list.AppendMutable().Message(), depth+1)
			}
		case fd.Message() != nil:
			fill(rng, m.Mutable(fd).Message(), depth+1)
		default:
			m.Set(fd, scalar(rng, fd))
		}
	}
}

func scalar(rng *rand.Rand, fd protoreflect.FieldDescriptor) protoreflect.Value {
	texts := []string{"", "a", "topic-1", "ключ", "host:1", "0123456789abcdef0123456789abcdef"}
	n := int64(rng.Uint64()) >> rng.IntN(64)
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n % 10))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[rng.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(texts[rng.IntN(len(texts))]))
	}
	panic("no random value for " + fd.Kind().String())
}

func stampOf(ms int64) *timestamppb.Timestamp {
	return &timestamppb.Timestamp{Seconds: ms / 1000, Nanos: int32(ms%1000) * 1e6}
}
