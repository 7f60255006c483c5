package engine

import (
	"context"
	"sync/atomic"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// session is the engine as one proxy sees it: the direct implementation of brokerapi.Broker.
type session struct {
	e    *Engine
	name string
	ev   brokerapi.Events

	gone   atomic.Bool          // Close was called
	closed bool                 // the writer has seen it
	ended  []brokerapi.LiteGone // lite subscriptions that ended; the writer's

	producing []record.TopicID // topics that the proxy has producers of, sorted; the writer's
	told      int64            // when it was told of checks and has not fetched them since, lease clock; 0: not
}

// Attach opens the engine for one proxy.
func (e *Engine) Attach(proxy string, ev brokerapi.Events) (brokerapi.Broker, error) {
	s := &session{e: e, name: proxy, ev: ev}
	_, err := ask(context.Background(), e, func(done func(struct{}, error)) op {
		return &callOp{do: func(w *writer) { w.ready.sessions[s] = struct{}{} }, done: func(err error) { done(struct{}{}, err) }}
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// errGone answers calls on a closed session.
var errGone = mqerr.New(mqerr.Unavailable, "this connection to the broker is closed")

func (s *session) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	if s.e.o.Pressed() {
		s.e.o.PressedRefused()
		done(nil, errPressed)
		return
	}
	s.e.submit(&sendOp{req: req, done: done})
}

func (s *session) Pop(req *brokerapi.PopRequest, done func(*brokerapi.PopReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&popOp{from: s, req: req, done: done})
}

func (s *session) Ack(req *brokerapi.AckRequest, done func(*brokerapi.AckReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&ackOp{req: req, done: done})
}

func (s *session) Change(req *brokerapi.ChangeRequest, done func(*brokerapi.ChangeReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&changeOp{req: req, done: done})
}

func (s *session) Alive(ctx context.Context, clients []string) error {
	return s.call(ctx, func(w *writer) {
		for _, c := range clients {
			if n, known := w.views.pop.Client([]byte(c)); known {
				w.live.heard(w, n)
			}
			w.lite.heard(w, c)
		}
	})
}

func (s *session) EndSession(ctx context.Context, client string) error {
	var failed error
	err := s.call(ctx, func(w *writer) {
		n, known := w.views.pop.Client([]byte(client))
		w.lite.goodbye(w, client)
		switch {
		case !known:
		case !w.hasSpace(space.Broker, sessionEndBytes):
			failed = w.noSpace(space.Broker)
		default:
			w.endSession(n, w.lease+w.e.o.GoodbyeDelay.Milliseconds())
		}
	})
	if err != nil {
		return err // the writer may still be at it
	}
	return failed
}

// Close forgets what this proxy armed.
func (s *session) Close() error {
	if s.gone.Swap(true) {
		return nil
	}
	done := make(chan error, 1)
	s.e.submitOwn(&callOp{done: func(err error) { done <- err }, do: func(w *writer) {
		s.closed = true
		delete(w.ready.sessions, s)
		w.txns.checks.leave(s)
		w.pulls.leave(s)
		w.full.leave(s)
		for _, t := range w.topics.byID {
			for _, u := range t.subs {
				if _, is := u.armed[s]; is {
					delete(u.armed, s)
					w.ready.armed--
				}
			}
			w.lite.leave(w, t, s)
		}
	}})
	err := <-done
	if mqerr.Is(err, mqerr.Unavailable) || mqerr.Is(err, mqerr.Draining) {
		return nil // the engine has stopped: nothing is armed any more
	}
	return err
}

func (s *session) call(ctx context.Context, do func(w *writer)) error {
	if s.gone.Load() {
		return errGone
	}
	return s.e.call(ctx, do)
}

// call runs do on the writer and waits until its records, if any, are durable.
func (e *Engine) call(ctx context.Context, do func(w *writer)) error {
	return e.ask(ctx, &callOp{do: do})
}

// ask submits o and waits for its answer.
func (e *Engine) ask(ctx context.Context, o *callOp) error {
	_, err := ask(ctx, e, func(done func(struct{}, error)) op {
		o.done = func(err error) { done(struct{}{}, err) }
		return o
	})
	return err
}

// callOp runs a function on the writer.
type callOp struct {
	waiter
	do   func(w *writer)
	done func(error)
	all  bool // the answer waits until everything so far is durable, not only what do has logged
}

func (o *callOp) bytes() int { return 64 }

func (o *callOp) finish(_ *writer, err error) { o.done(err) }

func (o *callOp) run(w *writer) {
	before := w.batch.End()
	o.do(w)
	if end := w.batch.End(); o.all || end > before {
		o.end, o.sync = end, true
	}
}

// sessionEndBytes is the most that the record of an end takes.
const sessionEndBytes = 256

// endSession records that a client's session leases end at until.
func (w *writer) endSession(n record.ClientNum, until int64) {
	rec := record.SessionEnd{Client: n, Until: until}
	w.put(record.TypeSessionEnd, record.SessionEndSize(&rec), func(body []byte) { record.PutSessionEnd(body, &rec) })
	if err := w.views.pop.ApplySessionEnd(&rec); err != nil {
		w.broken(err)
	}
	w.live.forget(n)
	w.e.counts.Sessions.Add(1)
}
