package filter

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perigee-mq/perigee/store/record"
)

// Fields of the public SystemProperties that have a name for filters.
const (
	fieldTag       protowire.Number = 1
	fieldKeys      protowire.Number = 2
	fieldID        protowire.Number = 3
	fieldType      protowire.Number = 6
	fieldBornTime  protowire.Number = 7
	fieldBornHost  protowire.Number = 8
	fieldDeliverAt protowire.Number = 11
	fieldGroup     protowire.Number = 17
	fieldTrace     protowire.Number = 18
	fieldRecovery  protowire.Number = 19
	fieldLite      protowire.Number = 21
	fieldPriority  protowire.Number = 22
)

var systemNames = map[string]protowire.Number{
	"TAGS": fieldTag, "KEYS": fieldKeys, "UNIQ_KEY": fieldID, "TRAN_MSG": fieldType, "BORN_TIMESTAMP": fieldBornTime, "__BORNHOST": fieldBornHost,
	"TIMER_DELIVER_MS": fieldDeliverAt, "__SHARDINGKEY": fieldGroup, "TRACE_CONTEXT": fieldTrace, "CHECK_IMMUNITY_TIME_IN_SECONDS": fieldRecovery,
	"__LITE_TOPIC": fieldLite, "_SYS_MSG_PRIORITY_": fieldPriority,
}

// property finds a property of a message. What the message was sent with in its own fields goes before a
// user property of the same name.
func property(m *record.Msg, name string) ([]byte, bool) {
	if num, is := systemNames[name]; is {
		if value, ok := system(m, num); ok {
			return value, true
		}
	}
	return user(m.User, name)
}

// userField is the number of user_properties in the public Message.
const userField protowire.Number = 2

// user finds a user property in the encoded entries of a message. Of equal names the last one counts.
func user(b []byte, name string) (value []byte, ok bool) {
	eachBytes(b, func(num protowire.Number, entry []byte) {
		if num != userField {
			return
		}
		var k, v []byte
		eachBytes(entry, func(num protowire.Number, data []byte) {
			switch num {
			case 1:
				k = data
			case 2:
				v = data
			}
		})
		if string(k) == name {
			value, ok = v, true
		}
	})
	return value, ok
}

// eachBytes calls fn for each length-delimited field. The bytes were checked when the message came in;
// anything malformed ends it.
func eachBytes(b []byte, fn func(protowire.Number, []byte)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if typ == protowire.BytesType {
			data, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			fn(num, data)
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return
		}
		b = b[n:]
	}
}

// number finds the last varint field with this number.
func number(b []byte, want protowire.Number) (value uint64, ok bool) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return value, ok
		}
		b = b[n:]
		if num == want && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return value, ok
			}
			value, ok = v, true
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return value, ok
		}
		b = b[n:]
	}
	return value, ok
}

// transaction is the number of the message type in the public protocol.
const transaction = 4

// system finds what a message's own fields say.
func system(m *record.Msg, want protowire.Number) (value []byte, ok bool) {
	switch want {
	case fieldID:
		return m.ID, true
	case fieldType:
		if m.Type == transaction {
			return []byte("true"), true
		}
		return nil, false
	case fieldPriority:
		if v, ok := number(m.Sys, want); ok {
			return strconv.AppendInt(nil, int64(int32(v)), 10), true
		}
		return nil, false
	}
	eachBytes(m.Sys, func(num protowire.Number, data []byte) {
		switch {
		case num != want:
		case num == fieldKeys && ok:
			value = append(append(slices.Clip(value), ' '), data...)
		default:
			value, ok = data, true
		}
	})
	if !ok {
		return nil, false
	}
	switch want {
	case fieldBornTime, fieldDeliverAt:
		seconds, _ := number(value, 1)
		nanos, _ := number(value, 2)
		return strconv.AppendInt(nil, int64(seconds)*1000+int64(nanos)/1e6, 10), true
	case fieldRecovery:
		seconds, _ := number(value, 1)
		return strconv.AppendInt(nil, int64(seconds), 10), true
	}
	return value, true
}
