package repl

import (
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// session is one follower's stream, from the Welcome on. One goroutine sends, another one takes the acks.
type session struct {
	l      *Leader
	stream serverStream
	id     quorum.Session
	member quorum.Member
	from   record.Pos // the two logs are the same up to here

	wake    chan struct{} // there may be something to send
	done    chan struct{} // closed: the session is to end, bye and why are set
	sent    atomic.Int64  // end of what was sent
	written atomic.Int64  // end of what was acked as written

	mu    sync.Mutex // guards what follows
	ended bool
	bye   farewell
	why   error
	news  news

	left  bool // the follower has said that it stops; owned by the goroutine of Serve
	taken news // owned by the goroutine of Run
}

// news is what happened in a session since the leader looked.
type news struct {
	isSent  bool
	sentEnd record.Pos // where the log ended when something was sent first
	isAck   bool
	ack     follower.Ack // the furthest
}

func (l *Leader) newSession(stream serverStream, m quorum.Member, id quorum.Session, from record.Pos) *session {
	s := &session{l: l, stream: stream, id: id, member: m, from: from, wake: make(chan struct{}, 1), done: make(chan struct{})}
	s.sent.Store(int64(from))
	s.written.Store(int64(from))
	return s
}

// end asks the session to end. The first reason counts.
func (s *session) end(bye farewell, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended, s.bye, s.why = true, bye, why
	close(s.done)
}

// take takes the news over. It is called by the goroutine of Run.
func (s *session) take() {
	s.mu.Lock()
	s.taken, s.news = s.news, news{}
	s.mu.Unlock()
}

// acked takes an ack of this session.
func (s *session) acked(a follower.Ack) {
	s.mu.Lock()
	n := &s.news
	n.isAck = true
	n.ack.Written, n.ack.Durable = max(n.ack.Written, a.Written), max(n.ack.Durable, a.Durable)
	s.mu.Unlock()
	s.written.Store(max(s.written.Load(), int64(a.Written)))
	ring(s.l.bell)
	ring(s.wake)
}

// sending notes where the log ends when something is sent.
func (s *session) sending(end record.Pos) {
	s.mu.Lock()
	if !s.news.isSent {
		s.news.isSent, s.news.sentEnd = true, end
	}
	s.mu.Unlock()
}

// send sends records and beats until the session ends, and why at last. It returns when the stream is of no more use.
func (s *session) send(confirm record.Pos) error {
	o := &s.l.o
	r := o.CommitLog.Chunks(s.from)
	memory := memories.take(0)
	defer func() { memories.give(memory) }()
	beat := time.NewTimer(o.Beat)
	defer beat.Stop()
	due := false
	for {
		select {
		case <-s.done:
			return s.stream.SendMsg(s.bye.response())
		default:
		}
		written, confirmed := o.CommitLog.Written(), s.l.Confirmed()
		room := o.WindowBytes - (int64(r.Pos()) - s.written.Load())
		var err error
		switch {
		case r.Pos() < written && room > 0:
			r.Into((*memory)[:0])
			c, fault := r.Next(written, o.BatchBytes)
			if fault != nil {
				s.unreadable(fault)
				continue
			}
			s.sending(written)
			s.sent.Store(int64(c.End))
			var lent bool
			if lent, err = s.batch(&c, confirmed); lent {
				memory = memories.take(0)
			}
		case due || confirmed > confirm:
			s.sending(written)
			err = s.stream.SendMsg(withClock(beatResponse(follower.Beat{Session: s.id, Epoch: s.l.epoch, LogEnd: written, Confirm: confirmed}), o.LeaseClock()))
		default:
			select {
			case <-s.wake:
			case <-s.done:
			case <-beat.C:
				due = true
			}
			continue
		}
		if err != nil {
			return err
		}
		confirm, due = confirmed, false
		beat.Reset(o.Beat)
	}
}

// batch sends a chunk. Lent tells that its memory is gone.
func (s *session) batch(c *commitlog.Chunk, confirm record.Pos) (lent bool, err error) {
	m := &outgoing{batch: batch{
		Batch: follower.Batch{Session: s.id, Epoch: s.l.epoch, Start: c.Start, End: c.End, RecordEpoch: c.Epoch, Confirm: confirm},
		files: c.Segments,
	}}
	if lent = len(c.Bytes) >= lendBytes; lent {
		records := c.Bytes
		m.buffer = mem.NewBuffer(&records, lender{})
	} else {
		m.buffer = mem.Copy(c.Bytes, mem.DefaultBufferPool())
	}
	return lent, s.stream.SendMsg(m)
}

// unreadable ends the session because of what comes next in the log.
func (s *session) unreadable(err error) {
	reason := replicationv1.CloseReason_CLOSE_REASON_DAMAGED
	if mqerr.Is(err, mqerr.NotFound) {
		reason = replicationv1.CloseReason_CLOSE_REASON_BEHIND
	} else {
		s.l.o.Damaged(err)
	}
	s.end(s.l.bye(reason, err), err)
}
