package wire

import "slices"

// SendRequest is a SendMessageRequest. It may be used again for another request.
type SendRequest struct {
	Messages []SendMessage
}

// SendMessage is one Message of a SendMessageRequest: the fields that a sender may set.
type SendMessage struct {
	Topic Resource
	// User holds the entries of user_properties as written, tags and lengths included.
	User       []byte
	Properties int // entries in User
	Body       []byte

	Tag           []byte
	HasTag        bool
	MessageID     []byte
	BodyEncoding  int32
	MessageType   int32
	Born          Time
	BornHost      []byte
	DeliverAt     Time
	Group         []byte // message group
	Recovery      Time   // orphaned_transaction_recovery_duration
	LiteTopic     []byte
	Priority      int32
	HasPriority   bool
	keyBytes      int // of all keys together
	system        Part
	userCopied    bool // User is a copy, since the entries are not next to each other
	userEnd       int  // bytes that were left in the message after the last entry
	propertyBytes int
}

// PropertyBytes is the size of keys and values of the user properties, tag and keys together.
func (m *SendMessage) PropertyBytes() int { return m.propertyBytes + len(m.Tag) + m.keyBytes }

// SystemBytes is the size of the system properties as written.
func (m *SendMessage) SystemBytes() int { return m.system.Len() }

// Decode reads a SendMessageRequest.
func (s *SendRequest) Decode(b []byte) error {
	s.Messages = s.Messages[:0]
	r := reader{b: b}
	var f field
	for r.next(&f) {
		if !f.is(1, typeBytes) {
			continue
		}
		if len(s.Messages) == MaxEntries {
			return ErrTooMany
		}
		s.Messages = append(s.Messages, SendMessage{})
		r.also(s.Messages[len(s.Messages)-1].decode(f.data))
	}
	return r.err
}

// Reset forgets the request, so that its bytes are not held on to.
func (s *SendRequest) Reset() {
	clear(s.Messages)
	s.Messages = s.Messages[:0]
}

func (m *SendMessage) decode(b []byte) error {
	r := reader{b: b}
	var f field
	for r.next(&f) {
		if f.typ != typeBytes {
			continue
		}
		switch f.num {
		case 1:
			r.also(m.Topic.decode(place{message: b, num: 1}, f.data))
		case 2:
			r.also(m.property(&f, len(r.b)))
		case 3:
			r.also(m.properties(place{message: b, num: 3}, f.data))
		case 4:
			m.Body = f.data
		}
	}
	return r.err
}

// property adds one entry of the user properties; left is what the message has after it.
func (m *SendMessage) property(in *field, left int) error {
	key, value, err := property(in.data)
	m.propertyBytes += len(key) + len(value)
	m.Properties++
	switch {
	case m.Properties == 1:
		m.User = in.raw
	case !m.userCopied && left+len(in.raw) == m.userEnd:
		m.User = m.User[:len(m.User)+len(in.raw)]
	default:
		if !m.userCopied {
			m.User = slices.Clip(m.User) // the next append copies
		}
		m.User, m.userCopied = append(m.User, in.raw...), true
	}
	m.userEnd = left
	return err
}

// property reads one map entry.
func property(b []byte) (key, value []byte, err error) {
	r := reader{b: b}
	var f field
	for r.next(&f) {
		switch {
		case f.is(1, typeBytes):
			r.text(&key, &f)
		case f.is(2, typeBytes):
			r.text(&value, &f)
		}
	}
	return key, value, r.err
}

// properties reads SystemProperties.
func (m *SendMessage) properties(in place, data []byte) error {
	m.system.add(in, data)
	r := reader{b: data}
	var f field
	var ignored []byte
	for r.next(&f) {
		switch f.typ {
		case typeVarint:
			switch f.num {
			case 5:
				m.BodyEncoding = int32(f.val)
			case 6:
				m.MessageType = int32(f.val)
			case 22:
				m.Priority, m.HasPriority = int32(f.val), true
			}
		case typeBytes:
			switch f.num {
			case 1:
				r.text(&m.Tag, &f)
				m.HasTag = true
			case 2:
				r.text(&ignored, &f)
				m.keyBytes += len(f.data)
			case 3:
				r.text(&m.MessageID, &f)
			case 4:
				r.also(check(f.data, digestShape))
			case 7:
				r.also(m.Born.decode(f.data))
			case 8:
				r.text(&m.BornHost, &f)
			case 9, 15:
				r.also(check(f.data, plainShape))
			case 10, 12, 18:
				r.text(&ignored, &f)
			case 11:
				r.also(m.DeliverAt.decode(f.data))
			case 17:
				r.text(&m.Group, &f)
			case 19:
				r.also(m.Recovery.decode(f.data))
			case 20:
				r.also(check(f.data, deadLetterShape))
			case 21:
				r.text(&m.LiteTopic, &f)
			}
		}
	}
	return r.err
}

// Properties goes through the user properties of a message that was decoded without error.
type Properties struct{ r reader }

// UserProperties starts at the first of the encoded entries.
func UserProperties(user []byte) Properties { return Properties{reader{b: user}} }

// Next returns the next key and value; false at the end.
func (p *Properties) Next() (key, value []byte, ok bool) {
	var f field
	if !p.r.next(&f) {
		return nil, nil, false
	}
	key, value, _ = property(f.data)
	return key, value, true
}

// Keys goes through the message keys.
type Keys struct {
	pieces pieces
	inner  reader
}

// Keys starts at the first message key.
func (m *SendMessage) Keys() Keys { return Keys{pieces: m.system.pieces()} }

// Next returns the next key; false at the end.
func (k *Keys) Next() ([]byte, bool) {
	var f field
	for {
		for k.inner.next(&f) {
			if f.is(2, typeBytes) {
				return f.data, true
			}
		}
		b, ok := k.pieces.next()
		if !ok {
			return nil, false
		}
		k.inner = reader{b: b}
	}
}
