// Package wiretest compares our sources of the public protocol with the table
// of that protocol, testdata/contract.tsv: one row for each enum value, each
// field, each message without fields and each method. Rows turns compiled
// descriptors into the same rows, so that the comparison works both ways:
// nothing may be missing, and nothing may be there that official clients do not
// know. The table is a fact about other programs; never change it to make the
// test pass.
package wiretest

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Header is the first row of the table.
const Header = "kind\towner\tname\tnumber_or_kind\ttype_or_input\tlabel_or_output"

// Rows returns the rows of one file, in no particular order.
func Rows(file protoreflect.FileDescriptor) []string {
	var rows []string
	rows = appendEnums(rows, file.Enums())
	rows = appendMessages(rows, file.Messages())
	for i := range file.Services().Len() {
		methods := file.Services().Get(i).Methods()
		for j := range methods.Len() {
			m := methods.Get(j)
			rows = append(rows, row("rpc", m.Parent().FullName(), m.Name(), streaming(m), string(m.Input().FullName()), string(m.Output().FullName())))
		}
	}
	return rows
}

func appendEnums(rows []string, enums protoreflect.EnumDescriptors) []string {
	for i := range enums.Len() {
		values := enums.Get(i).Values()
		for j := range values.Len() {
			v := values.Get(j)
			rows = append(rows, row("enum", v.Parent().FullName(), v.Name(), strconv.Itoa(int(v.Number())), "", ""))
		}
	}
	return rows
}

func appendMessages(rows []string, messages protoreflect.MessageDescriptors) []string {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue // a part of its field's type
		}
		if m.Fields().Len() == 0 {
			rows = append(rows, row("message", m.FullName(), "", "", "", "empty"))
		}
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			rows = append(rows, row("field", m.FullName(), f.Name(), strconv.Itoa(int(f.Number())), typeName(f), label(f)))
		}
		rows = appendEnums(rows, m.Enums())
		rows = appendMessages(rows, m.Messages())
	}
	return rows
}

func row(kind string, owner protoreflect.FullName, name protoreflect.Name, number, typ, label string) string {
	return strings.Join([]string{kind, string(owner), string(name), number, typ, label}, "\t")
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s,%s>", typeName(f.MapKey()), typeName(f.MapValue()))
	case f.Message() != nil:
		return string(f.Message().FullName())
	case f.Enum() != nil:
		return string(f.Enum().FullName())
	default:
		return f.Kind().String()
	}
}

func label(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map"
	case f.IsList():
		return "repeated"
	case f.HasOptionalKeyword():
		return "optional"
	case f.ContainingOneof() != nil:
		return "oneof:" + string(f.ContainingOneof().Name())
	default:
		return "singular"
	}
}

func streaming(m protoreflect.MethodDescriptor) string {
	switch {
	case m.IsStreamingClient() && m.IsStreamingServer():
		return "bidi"
	case m.IsStreamingClient():
		return "client_stream"
	case m.IsStreamingServer():
		return "server_stream"
	default:
		return "unary"
	}
}
