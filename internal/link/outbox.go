package link

import (
	"encoding/binary"
	"time"
)

// outbox is what waits to be sent by one side. The link's mutex guards it.
//
// Invariants: a message that has started is on the active queue until its last byte is copied; a
// message that fits one frame never is on the large or active queue; messages of a class start in the
// order in which they were put, small and large ones apart; none starts or becomes active without
// credit, which it takes at that moment.
type outbox struct {
	credit [Classes]int64 // what the peer takes; a message may overdraw it
	small  [Classes]queue
	large  [Classes]queue
	active queue // large messages that have started, of all classes
	turn   int   // the class that is next

	waiting [Classes]int64 // charge of the messages on small and large
	stop    [Classes]bool  // no message of the class may start now

	owed    [Classes]int64 // to be given back to the peer
	owedMin [Classes]int64 // from which it is

	window             *[Classes]int64 // to be told, once
	cancels            []uint32
	ping, pong, goaway bool
	event              bool // the side has events
	overdue            bool // and they had to wait for a packet already

	done   []*message // replies that this fill has copied to their end
	frames int64      // of this fill
}

// put queues a message.
func (o *outbox) put(m *message) {
	o.waiting[m.class] += charge(m.size)
	if m.frameSize() == headSize+m.headSize()+m.left {
		o.small[m.class].push(m)
		return
	}
	o.large[m.class].push(m)
}

// drop takes a message off its queue, so that its bytes are not read any more.
func (o *outbox) drop(m *message) {
	switch {
	case m.on == nil:
		return
	case m.on != &o.active:
		o.waiting[m.class] -= charge(m.size)
	case !m.started:
		o.credit[m.class] += charge(m.size) // the peer will never see it
	}
	m.remove()
}

// next is the first message of a queue, if the class may start one.
func (o *outbox) next(q *[Classes]queue, c int) *message {
	if o.credit[c] <= 0 || o.stop[c] {
		return nil
	}
	return q[c].first
}

// begin takes m off its queue and its credit.
func (o *outbox) begin(m *message) {
	o.credit[m.class] -= charge(m.size)
	o.waiting[m.class] -= charge(m.size)
	m.remove()
}

// empty tells whether no message waits.
func (o *outbox) empty() bool {
	n := o.active.n
	for i := range Classes {
		n += o.small[i].n + o.large[i].n
	}
	return n == 0
}

// fill appends to an empty packet what may go now: control frames, then small messages, then frames
// of large ones in turn, then events if no small message is left (they are younger).
func (o *outbox) fill(buf []byte, events func(dst []byte, limit int) ([]byte, bool)) []byte {
	o.done, o.frames = o.done[:0], 0
	buf = o.control(buf)
	o.activate()
	room := PacketMax
	if o.event {
		room -= FrameMax
	}
	limit := room
	if o.active.n > 0 {
		limit -= FrameMax // large messages get on, whatever else there is
	}
	buf = o.smalls(buf, limit)
	for o.active.n > 0 && len(buf)+o.active.first.frameSize() <= room {
		m := o.active.first
		m.remove()
		if buf = o.frame(buf, m); m.left > 0 {
			o.active.push(m)
		} else {
			o.activate()
		}
	}
	switch {
	case !o.event:
		return buf
	case !o.overdue && o.more():
		o.overdue = true
		return buf
	}
	return o.events(buf, events)
}

// more tells whether a small message could go in another packet.
func (o *outbox) more() bool {
	for i := range Classes {
		if o.next(&o.small, i) != nil {
			return true
		}
	}
	return false
}

func (o *outbox) events(buf []byte, events func(dst []byte, limit int) ([]byte, bool)) []byte {
	at := len(buf)
	buf, o.event = events(appendHead(buf, head{kind: kindEvent}), payloadMax)
	o.overdue = o.event
	if len(buf) == at+headSize {
		return buf[:at] // there were none
	}
	binary.LittleEndian.PutUint16(buf[at+2:], uint16(len(buf)-at-headSize))
	o.frames++
	return buf
}

// activate lets large messages start, class by class.
func (o *outbox) activate() {
	for idle := 0; idle < Classes && o.active.n < activeMax; {
		c := o.turn
		o.turn = (c + 1) % Classes
		m := o.next(&o.large, c)
		if m == nil {
			idle++
			continue
		}
		idle = 0
		o.begin(m)
		o.active.push(m)
	}
}

// smalls copies small messages, class by class, until one does not fit.
func (o *outbox) smalls(buf []byte, limit int) []byte {
	for idle := 0; idle < Classes; {
		c := o.turn
		o.turn = (c + 1) % Classes
		m := o.next(&o.small, c)
		if m == nil || len(buf)+m.frameSize() > limit {
			idle++
			continue
		}
		idle = 0
		o.begin(m)
		buf = o.frame(buf, m)
	}
	return buf
}

// frame copies the next frame of m.
func (o *outbox) frame(buf []byte, m *message) []byte {
	own := m.headSize()
	n := min(m.left, payloadMax-own)
	h := head{kind: m.kind, flags: m.flags, size: own + n, id: m.id}
	if own > 0 {
		h.flags |= flagFirst
	}
	if n == m.left {
		h.flags |= flagLast
	}
	buf = appendHead(buf, h)
	if own == requestHeadSize {
		buf = append(buf, m.op, byte(m.class))
		buf = binary.LittleEndian.AppendUint32(buf, timeLeft(m.deadline))
	}
	if own > 0 {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(m.size))
	}
	m.started = true
	buf = m.copyTo(buf, n)
	if m.left == 0 && m.kind == kindReply {
		o.done = append(o.done, m)
	}
	o.frames++
	return buf
}

// timeLeft is the time until t in ms, at least 1, or 0 if there is no deadline.
func timeLeft(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	ms := (time.Until(t) + time.Millisecond - 1) / time.Millisecond
	return uint32(min(max(ms, 1), 1<<32-1))
}

// control copies what is not a message. Cancels come a packet at a time.
func (o *outbox) control(buf []byte) []byte {
	one := func(is *bool, k kind) {
		if *is {
			*is = false
			buf = appendHead(buf, head{kind: k})
			o.frames++
		}
	}
	if w := o.window; w != nil {
		o.window = nil
		buf = appendHead(buf, head{kind: kindWindow, size: windowSize})
		for _, n := range w {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(n))
		}
		o.frames++
	}
	one(&o.ping, kindPing)
	one(&o.pong, kindPong)
	for c := range o.owed {
		if o.owed[c] < o.owedMin[c] {
			continue
		}
		n := min(o.owed[c], 1<<32-1)
		o.owed[c] -= n
		buf = appendHead(buf, head{kind: kindCredit, size: creditSize, id: uint32(c)})
		buf = binary.LittleEndian.AppendUint32(buf, uint32(n))
		o.frames++
	}
	n := min(len(o.cancels), FrameMax/headSize)
	for _, id := range o.cancels[:n] {
		buf = appendHead(buf, head{kind: kindCancel, id: id})
	}
	o.frames += int64(n)
	if o.cancels = o.cancels[n:]; len(o.cancels) == 0 {
		o.cancels = nil
	}
	one(&o.goaway, kindGoaway)
	return buf
}
