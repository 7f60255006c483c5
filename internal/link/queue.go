package link

import "time"

// message is a request or a reply on its way out. Its bytes are read with the link's mutex held, so
// that whoever takes it off its queue knows that they are not read any more.
type message struct {
	kind     kind
	flags    uint8 // flagFailed, flagRefused
	id       uint32
	op       uint8
	class    Class
	deadline time.Time // zero: none
	parts    [][]byte  // what is left of them
	size     int       // of all parts
	left     int       // bytes not copied yet
	started  bool      // its first frame is in a packet
	sent     func(ok bool)

	prev, next *message
	on         *queue
}

func (m *message) init(parts [][]byte) {
	m.parts = parts
	m.size = size(parts)
	m.left = m.size
}

func size(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// headSize is the length of the head in the first frame.
func (m *message) headSize() int {
	switch {
	case m.started:
		return 0
	case m.kind == kindRequest:
		return requestHeadSize
	default:
		return replyHeadSize
	}
}

// frameSize is the length of the message's next frame.
func (m *message) frameSize() int {
	return headSize + min(m.headSize()+m.left, payloadMax)
}

// copyTo appends the next n bytes of the message.
func (m *message) copyTo(dst []byte, n int) []byte {
	m.left -= n
	for n > 0 {
		p := m.parts[0]
		if len(p) > n {
			m.parts[0] = p[n:]
			return append(dst, p[:n]...)
		}
		dst = append(dst, p...)
		n -= len(p)
		m.parts = m.parts[1:]
	}
	return dst
}

// queue is a list of messages, each on at most one queue.
type queue struct {
	first, last *message
	n           int
}

func (q *queue) push(m *message) {
	m.on, m.prev, m.next = q, q.last, nil
	if q.last == nil {
		q.first = m
	} else {
		q.last.next = m
	}
	q.last = m
	q.n++
}

// remove takes m off its queue, if it is on one.
func (m *message) remove() {
	q := m.on
	if q == nil {
		return
	}
	if m.prev == nil {
		q.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		q.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	q.n--
	m.on, m.prev, m.next = nil, nil, nil
}
