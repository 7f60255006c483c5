package link

import (
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Handler serves the requests of one link.
type Handler interface {
	// Serve is called for each request, on the reader goroutine; it must not block. It or whoever it
	// hands the request to calls Request.Reply exactly once.
	Serve(r *Request)
	// Events appends at most limit bytes of events and tells whether there are more. It is called
	// after Server.Notify with a lock held: it must neither block nor call the server.
	Events(dst []byte, limit int) (out []byte, more bool)
}

// Request is one request of the client.
type Request struct {
	Op       uint8
	Class    Class
	Body     []byte    // belongs to the handler
	Deadline time.Time // zero: none

	message  // the reply
	in       assembly
	s        *Server
	canceled bool
	answered bool // Reply was called
}

// Server is the side that answers.
type Server struct {
	conn
	h Handler

	// The mutex of conn guards what follows.
	requests map[uint32]*Request // begun, and their replies not yet copied into a packet
	draining bool
	last     bool // the client will send no more requests
	ended    bool
}

// NewServer starts the server's side of a link over t, which it closes at the end.
func NewServer(t Transport, h Handler, o Options) *Server {
	s := &Server{h: h, requests: map[uint32]*Request{}}
	s.conn.init(t, o, s)
	s.start()
	return s
}

// Close ends the link at once.
func (s *Server) Close() {
	s.fail(mqerr.New(mqerr.Unavailable, "the broker has closed the connection"))
}

// Drain asks the client for no more requests, refuses those that come nevertheless, and ends the link
// when all others are answered and the client has agreed.
func (s *Server) Drain() {
	s.mu.Lock()
	if !s.draining {
		s.draining, s.out.goaway = true, true
		s.work.Signal()
	}
	s.mu.Unlock()
}

// Notify says that there are events.
func (s *Server) Notify() {
	s.mu.Lock()
	s.out.event = true
	s.work.Signal()
	s.mu.Unlock()
}

// frame handles what a client sends.
func (s *Server) frame(h head, payload []byte) error {
	switch h.kind {
	case kindRequest:
		return s.request(h, payload)
	case kindCancel:
		s.cancel(h.id)
		return nil
	case kindGoaway:
		s.mu.Lock()
		s.last = true
		s.work.Signal()
		s.mu.Unlock()
		return nil
	}
	return broken("a frame of kind %d, which is for clients", h.kind)
}

// request adds a frame to a request and hands it to the handler when it is the last one.
func (s *Server) request(h head, payload []byte) error {
	s.mu.Lock()
	r, whole, err := s.assemble(h, payload)
	refuse := s.draining
	s.mu.Unlock()
	if err != nil || !whole {
		return err
	}
	s.n.Requests.Add(1)
	r.Body, r.in.buf = r.in.buf, nil
	if refuse {
		r.refuse()
		return nil
	}
	s.h.Serve(r)
	return nil
}

func (s *Server) assemble(h head, payload []byte) (r *Request, whole bool, err error) {
	r = s.requests[h.id]
	if h.flags&flagFirst == 0 {
		if r == nil || r.in.buf == nil {
			return nil, false, broken("a frame of request %d out of turn", h.id)
		}
		whole, err = r.in.add(payload, h.flags&flagLast != 0)
		return r, whole, err
	}
	switch {
	case r != nil:
		return nil, false, broken("two requests with the id %d", h.id)
	case s.last:
		return nil, false, broken("a request after the last one")
	case payload[1] >= Classes:
		return nil, false, broken("a request of class %d", payload[1])
	}
	r = &Request{Op: payload[0], Class: Class(payload[1]), s: s}
	r.message.kind, r.id, r.class = kindReply, h.id, r.Class
	if ms := le32(payload, 2); ms > 0 {
		r.Deadline = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
	size := int(le32(payload, 6))
	if err := s.take(r.Class, size); err != nil {
		return nil, false, err
	}
	r.in.begin(size)
	s.requests[h.id] = r
	whole, err = r.in.add(payload[requestHeadSize:], h.flags&flagLast != 0)
	return r, whole, err
}

// cancel drops a request that is not complete, or a reply that has not started. The client still
// gets one reply to each.
func (s *Server) cancel(id uint32) {
	s.mu.Lock()
	r := s.requests[id]
	if r == nil || r.canceled || r.started {
		s.mu.Unlock()
		return // the reply is on its way
	}
	r.canceled = true
	var dropped func(bool)
	switch {
	case r.in.buf != nil: // not complete
		r.in.buf = nil
		r.answered = true
		s.refuseLocked(r)
	case r.on != nil: // its reply waits
		s.out.drop(&r.message)
		dropped = r.sent
		s.refuseLocked(r)
	}
	s.mu.Unlock()
	if dropped != nil {
		dropped(false)
	}
}

// refuse answers without a body.
func (r *Request) refuse() {
	s := r.s
	s.mu.Lock()
	r.answered = true
	s.refuseLocked(r)
	s.mu.Unlock()
}

func (s *Server) refuseLocked(r *Request) {
	r.flags = flagRefused
	s.queue(r, nil, nil)
}

// queue puts the reply of r into the outbox. The mutex is held.
func (s *Server) queue(r *Request, parts [][]byte, sent func(bool)) {
	if s.ended {
		return
	}
	r.message.init(parts)
	r.sent = sent
	s.out.put(&r.message)
	s.work.Signal()
}

// Reply sends the reply, or an encoded error if failed. sent, if not nil, is called once: with true
// when the reply was handed to the transport as a whole, with false if it never will be, because the
// link has ended or nobody waits for it. The parts must stay untouched until then; without sent, for
// good. A reply larger than MessageMax is an error of the handler, and so it is for the client.
func (r *Request) Reply(parts [][]byte, failed bool, sent func(ok bool)) {
	s := r.s
	s.mu.Lock()
	if r.answered {
		s.mu.Unlock()
		panic("link: a second reply to one request")
	}
	r.answered = true
	if failed {
		r.flags = flagFailed
	}
	lost := true
	switch {
	case r.canceled:
		s.refuseLocked(r)
	case size(parts) > MessageMax:
		r.flags = flagFailed
		s.queue(r, nil, nil)
	case !s.ended:
		lost = false
		s.queue(r, parts, sent)
	}
	s.mu.Unlock()
	if lost && sent != nil {
		sent(false)
	}
}

func (s *Server) events(dst []byte, limit int) ([]byte, bool) {
	at := len(dst)
	dst, more := s.h.Events(dst, limit)
	if len(dst) > at {
		s.n.Events.Add(1)
	}
	return dst, more
}

// copied ends requests whose replies are on their way: their credit goes back.
func (s *Server) copied(replies []*message) {
	for _, m := range replies {
		r := s.requests[m.id]
		delete(s.requests, m.id)
		s.giveBack(r.Class, r.in.size)
	}
	s.n.Replies.Add(int64(len(replies)))
}

var drained = mqerr.New(mqerr.Draining, "the broker is going away")

// quiet ends a drained link.
func (s *Server) quiet() (bool, error) {
	if s.draining && s.last && len(s.requests) == 0 {
		return false, drained
	}
	return false, nil
}

func (s *Server) due(time.Time) (func(), time.Time) { return nil, time.Time{} }

// end tells that replies which wait will not be sent.
func (s *Server) end(error) {
	s.mu.Lock()
	s.ended = true
	var lost []func(bool)
	for _, r := range s.requests {
		if r.answered && r.sent != nil {
			lost = append(lost, r.sent)
		}
	}
	s.requests = nil
	s.mu.Unlock()
	for _, sent := range lost {
		sent(false)
	}
}
