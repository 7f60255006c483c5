package repl

import (
	"log/slog"
	"time"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Serve is the life of one follower's stream. It returns when the stream is to end; the error says why to gRPC.
func (l *Leader) Serve(stream serverStream) error {
	if !l.enter() {
		return l.why
	}
	defer l.work.Done()
	in := make(chan *replicationv1.ReplicateRequest)
	quit := make(chan struct{})
	defer close(quit)
	if !l.enter() {
		return l.why
	}
	go func() { // ends when this function has returned, which ends the stream
		defer l.work.Done()
		defer close(in)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case in <- m:
			case <-quit:
				return
			}
		}
	}()
	s, w, err := l.greet(stream, in)
	if err != nil {
		l.o.Log.LogAttrs(stream.Context(), slog.LevelWarn, "a follower was turned away", slog.Uint64("epoch", uint64(l.epoch)), slog.String("error", err.Error()))
		return err
	}
	log := l.o.Log.With(slog.Uint64("epoch", uint64(l.epoch)), slog.Uint64("replica", uint64(s.member.Replica)), slog.Uint64("session", uint64(s.id)))
	log.LogAttrs(stream.Context(), slog.LevelInfo, "a follower has come", slog.String("verdict", w.Verdict.String()), slog.Int64("position", int64(s.from)), slog.Int64("end", int64(w.LogEnd)))
	sender := make(chan struct{})
	if l.enter() {
		go func() {
			defer l.work.Done()
			defer close(sender)
			if err := s.send(w.Confirm); err != nil {
				s.end(farewell{}, mqerr.New(mqerr.Unavailable, "the stream broke: %w", err))
			}
		}()
	} else {
		close(sender)
		s.end(farewell{}, errSuperseded)
	}
	s.listen(in)
	s.linger(sender)
	l.ask(func() { l.remove(s) })
	log.LogAttrs(stream.Context(), slog.LevelInfo, "a follower has gone", slog.String("reason", s.why.Error()))
	return s.why
}

// lingerTime is how long a stream that ends may take to tell the follower why.
const lingerTime = 200 * time.Millisecond

// linger waits until the follower is told, if it reads.
func (s *session) linger(sender <-chan struct{}) {
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case <-sender:
	case <-timer.C:
	}
}

// listen takes what the follower says until the session ends.
func (s *session) listen(in <-chan *replicationv1.ReplicateRequest) {
	l, heard := s.l, false
	silence := newPatience(l.o.Silence, time.Now())
	timer := time.NewTimer(silence.step)
	defer timer.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-timer.C:
			if silence.look(time.Now(), heard) {
				err := mqerr.New(mqerr.Unavailable, "nothing was heard from replica %d for %v", s.member.Replica, l.o.Silence)
				s.end(l.bye(replicationv1.CloseReason_CLOSE_REASON_SILENT, err), err)
				return
			}
			heard = false
			timer.Reset(time.Until(silence.next))
		case m, ok := <-in:
			if !ok {
				s.end(farewell{}, mqerr.New(mqerr.Unavailable, "the stream of replica %d broke", s.member.Replica))
				return
			}
			heard = true
			s.heard(m)
		}
	}
}

func (s *session) heard(m *replicationv1.ReplicateRequest) {
	l := s.l
	switch {
	case m.GetAck() != nil:
		switch a := ackOf(m.GetAck()); {
		case a.Epoch > l.epoch:
			l.higher(a.Epoch)
		case a.Session != s.id || a.Epoch != l.epoch || a.Durable < 0 || a.Written < a.Durable:
			err := mqerr.New(mqerr.Invalid, "an ack of session %d in epoch %d, up to %d and %d, in session %d of epoch %d", a.Session, a.Epoch, a.Written, a.Durable, s.id, l.epoch)
			s.end(l.bye(replicationv1.CloseReason_CLOSE_REASON_PROTOCOL, err), err)
		default:
			s.acked(a)
		}
	case m.GetClose() != nil:
		bye := farewellOf(m.GetClose())
		if bye.epoch > l.epoch {
			l.higher(bye.epoch)
		}
		s.left = bye.reason == replicationv1.CloseReason_CLOSE_REASON_LEAVING
		s.end(farewell{}, mqerr.New(mqerr.Unavailable, "replica %d ended the stream (%v): %s", s.member.Replica, bye.reason, bye.text))
	default:
		err := mqerr.New(mqerr.Invalid, "replica %d sent neither an ack nor a farewell", s.member.Replica)
		s.end(l.bye(replicationv1.CloseReason_CLOSE_REASON_PROTOCOL, err), err)
	}
}

// higher says that a follower has seen a higher epoch.
func (l *Leader) higher(epoch record.Epoch) {
	l.o.Higher(epoch)
	l.Seen(epoch)
}
