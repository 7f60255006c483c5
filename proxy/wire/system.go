package wire

// System is what completes the system properties of a message for storing.
type System struct {
	Type     int32 // message type, derived
	Encoding int32 // body encoding, 1 or 2
	BornMS   int64 // if the sender gave no born time
	BornHost string
}

// kept are the fields of SystemProperties that a sender may set and that are stored as written:
// tag, keys, message_id, born_timestamp, born_host, delivery_timestamp, message_group,
// trace_context, orphaned_transaction_recovery_duration, lite_topic, priority. The body's encoding
// and the message's type are written anew, everything else is the server's to say or unknown.
const kept uint32 = 1<<1 | 1<<2 | 1<<3 | 1<<7 | 1<<8 | 1<<11 | 1<<17 | 1<<18 | 1<<19 | 1<<21 | 1<<22

const transaction = 4

// AppendSystem appends the system properties as they are stored. Nothing is decoded and encoded
// again: fields are copied whole or left out.
func (m *SendMessage) AppendSystem(dst []byte, s System) []byte {
	keep := kept
	if len(m.BornHost) == 0 {
		keep &^= 1 << 8
	}
	if s.Type != transaction {
		keep &^= 1 << 19
	}
	pieces := m.system.pieces()
	for b, ok := pieces.next(); ok; b, ok = pieces.next() {
		dst = appendKept(dst, b, keep)
	}
	dst = appendInt(dst, 5, int64(s.Encoding))
	dst = appendInt(dst, 6, int64(s.Type))
	if !m.Born.Set {
		dst = appendTime(dst, 7, s.BornMS)
	}
	if len(m.BornHost) == 0 {
		dst = appendText(dst, 8, s.BornHost)
	}
	return dst
}

// appendKept copies the fields whose bit is set, neighbours in one piece.
func appendKept(dst, b []byte, keep uint32) []byte {
	r := reader{b: b}
	var f field
	for r.next(&f) {
		want := uint8(typeBytes)
		if f.num == 22 {
			want = typeVarint
		}
		if f.num < 32 && keep&(1<<f.num) != 0 && f.typ == want {
			dst = append(dst, f.raw...)
		}
	}
	return dst
}
