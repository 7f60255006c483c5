package wiretest

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// The generated package must be linked in, or the registry does not know it.
var definition = rmqv2.File_apache_rocketmq_v2_definition_proto

func table(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/contract.tsv")
	require.NoError(t, err)
	rows := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	require.Equal(t, Header, rows[0])
	return rows[1:]
}

// TestContract walks all compiled files of the public protocol.
func TestContract(t *testing.T) {
	var got []string
	protoregistry.GlobalFiles.RangeFilesByPackage(definition.Package(), func(file protoreflect.FileDescriptor) bool {
		got = append(got, Rows(file)...)
		return true
	})
	want := table(t)
	require.Greater(t, len(want), 400, "the table is cut short")
	for _, row := range want {
		if !slices.Contains(got, row) {
			t.Errorf("missing in proto/apache/rocketmq/v2:\n  %s", row)
		}
	}
	for _, row := range got {
		if !slices.Contains(want, row) {
			t.Errorf("not in the public protocol:\n  %s", row)
		}
	}
	require.Len(t, got, len(want), "a row is there twice")
}

// TestRowsTellApart changes one thing at a time in a descriptor: each change
// must change the rows, or TestContract could not see it.
func TestRowsTellApart(t *testing.T) {
	build := func(change func(*descriptorpb.FileDescriptorProto)) []string {
		file := protodesc.ToFileDescriptorProto(rmqv2.File_apache_rocketmq_v2_service_proto)
		change(file)
		built, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
		require.NoError(t, err)
		return Rows(built)
	}
	message := func(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.DescriptorProto {
		i := slices.IndexFunc(f.MessageType, func(m *descriptorpb.DescriptorProto) bool { return m.GetName() == name })
		return f.MessageType[i]
	}
	method := func(f *descriptorpb.FileDescriptorProto, name string) *descriptorpb.MethodDescriptorProto {
		methods := f.Service[0].Method
		i := slices.IndexFunc(methods, func(m *descriptorpb.MethodDescriptorProto) bool { return m.GetName() == name })
		return methods[i]
	}
	unchanged := build(func(*descriptorpb.FileDescriptorProto) {})
	for name, change := range map[string]func(*descriptorpb.FileDescriptorProto){
		"field name":   func(f *descriptorpb.FileDescriptorProto) { *message(f, "QueryRouteRequest").Field[0].Name = "topics" },
		"field number": func(f *descriptorpb.FileDescriptorProto) { *message(f, "QueryRouteRequest").Field[0].Number = 9 },
		"message type": func(f *descriptorpb.FileDescriptorProto) {
			*message(f, "QueryRouteRequest").Field[0].TypeName = ".apache.rocketmq.v2.Message"
		},
		"scalar type": func(f *descriptorpb.FileDescriptorProto) {
			*message(f, "GetOffsetResponse").Field[1].Type = descriptorpb.FieldDescriptorProto_TYPE_SINT64
		},
		"label": func(f *descriptorpb.FileDescriptorProto) {
			*message(f, "QueryRouteRequest").Field[0].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
		},
		"oneof name": func(f *descriptorpb.FileDescriptorProto) {
			*message(f, "PullMessageResponse").OneofDecl[0].Name = "part"
		},
		"no oneof":      func(f *descriptorpb.FileDescriptorProto) { message(f, "PullMessageResponse").Field[2].OneofIndex = nil },
		"field gone":    func(f *descriptorpb.FileDescriptorProto) { m := message(f, "QueryRouteRequest"); m.Field = m.Field[1:] },
		"empty message": func(f *descriptorpb.FileDescriptorProto) { message(f, "HeartbeatResponse").Field = nil },
		"not optional": func(f *descriptorpb.FileDescriptorProto) {
			m := message(f, "HeartbeatRequest")
			m.Field[0].Proto3Optional, m.Field[0].OneofIndex, m.OneofDecl = nil, nil, nil
		},
		"enum name":   func(f *descriptorpb.FileDescriptorProto) { *f.EnumType[0].Value[1].Name = "PARTIAL" },
		"enum number": func(f *descriptorpb.FileDescriptorProto) { *f.EnumType[0].Value[1].Number = 9 },
		"nested enum": func(f *descriptorpb.FileDescriptorProto) {
			*message(f, "OffsetOption").EnumType[0].Value[1].Name = "LEAST"
		},
		"method name": func(f *descriptorpb.FileDescriptorProto) { *f.Service[0].Method[0].Name = "Query" },
		"method input": func(f *descriptorpb.FileDescriptorProto) {
			*f.Service[0].Method[0].InputType = ".apache.rocketmq.v2.Message"
		},
		"method output": func(f *descriptorpb.FileDescriptorProto) {
			*f.Service[0].Method[0].OutputType = ".apache.rocketmq.v2.Message"
		},
		"server streams":  func(f *descriptorpb.FileDescriptorProto) { method(f, "ReceiveMessage").ServerStreaming = nil },
		"client streams":  func(f *descriptorpb.FileDescriptorProto) { method(f, "Telemetry").ClientStreaming = nil },
		"service renamed": func(f *descriptorpb.FileDescriptorProto) { *f.Service[0].Name = "Messaging" },
	} {
		t.Run(name, func(t *testing.T) {
			require.NotEqual(t, unchanged, build(change))
		})
	}
}
