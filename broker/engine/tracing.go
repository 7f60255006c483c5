package engine

import (
	"context"
	"errors"

	"github.com/perigee-mq/perigee/broker/trace"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// traceMax bounds the events of one reply.
const traceMax = 4096

// Trace tells the life of one message from the log alone. It reads Options.TraceBytes of it beside everything
// else; the caller goes on with what the reply says.
func (s *session) Trace(ctx context.Context, req *brokerapi.TraceRequest) (*brokerapi.TraceReply, error) {
	if req.Max < 0 || req.Pos < 0 {
		return nil, mqerr.New(mqerr.Invalid, "a trace of at most %d events from position %d", req.Max, req.Pos)
	}
	t := &tracing{e: s.e, req: req, max: min(req.Max, traceMax), names: map[record.ClientNum]string{}, topics: map[record.TopicID]string{}}
	if t.max == 0 {
		t.max = 1024
	}
	reply, err := query(ctx, s, t.look, t.run)
	if err != nil || reply.Message.ID == "" {
		return reply, err
	}
	one := []brokerapi.Found{reply.Message}
	if err := s.states(ctx, one); err != nil {
		return nil, err
	}
	reply.Message = one[0]
	return reply, nil
}

// tracing is one call of Trace.
type tracing struct {
	e      *Engine
	req    *brokerapi.TraceRequest
	max    int
	end    record.Pos                  // of the log when the call came
	names  map[record.ClientNum]string // of the clients that lived then
	topics map[record.TopicID]string
	queues int             // of the topic
	held   brokerapi.Found // place of the message, if its queue has given it up while somebody has it; else offset -1
	life   *trace.Tracer
	out    brokerapi.TraceReply
}

func (t *tracing) look(w *writer) error {
	of, err := w.topicOf(t.req.Topic)
	if err != nil {
		return err
	}
	t.end = w.e.shown(of.sync)
	t.queues = len(of.queues)
	t.held = brokerapi.Found{Offset: -1}
	if k, off, is := w.views.heldPlace(record.Pos(t.req.Pos)); is {
		t.held.Queue, t.held.Offset = brokerapi.QueueID(k.Queue), brokerapi.QueueOffset(off)
	}
	for id, o := range w.topics.byID {
		t.topics[id] = o.def.Name
	}
	w.views.pop.EachClient(func(n record.ClientNum, name string) { t.names[n] = name })
	return nil
}

func (t *tracing) run(ctx context.Context) (*brokerapi.TraceReply, error) {
	if err := t.begin(); err != nil {
		return nil, err
	}
	t.life.Name = func(id record.TopicID) string { return t.topics[id] }
	events, err := t.skip(ctx)
	if err != nil {
		return nil, err
	}
	from := t.life.Next
	_, _, err = t.e.log.ScanPast(from, func(r record.Record) error {
		switch {
		case r.Pos >= t.end || t.life.Over:
			return errEnd
		case len(events) >= t.max || r.Pos-from >= record.Pos(t.e.o.TraceBytes):
			t.out.More = true
			return errEnd
		}
		if err := over(ctx); err != nil {
			return err
		}
		var err error
		events, err = t.life.Apply(events, &r)
		return err
	}, func(p commitlog.Past) error {
		if p.From >= t.end || p.To <= t.life.Next {
			return nil
		}
		t.e.past(p)
		events = t.life.Missed(events, p.From, p.To)
		return over(ctx)
	})
	if err != nil && !errors.Is(err, errEnd) {
		return nil, err
	}
	if t.out.State, err = t.life.Encode(); err != nil {
		return nil, err
	}
	t.out.Events = make([]brokerapi.TraceEvent, len(events))
	for i := range events {
		t.out.Events[i] = t.event(&events[i])
	}
	t.out.Next, t.out.End = brokerapi.LogPos(t.life.Next), brokerapi.LogPos(t.end)
	return &t.out, nil
}

// skip goes on where the log begins by now. Of a message that was carried forward its record comes first.
func (t *tracing) skip(ctx context.Context) (events []trace.Event, err error) {
	first := t.e.log.First()
	if t.life.Next >= first {
		return nil, nil
	}
	if t.life.Next == t.life.Pos {
		r, ref, err := t.e.read(t.life.Pos, 0)
		if err != nil {
			return nil, err
		}
		events, err = t.life.Apply(events, &r)
		ref.Release()
		if err != nil {
			return nil, err
		}
	}
	if t.life.Offset < 0 {
		m := t.out.Message
		m.Pos, m.Topic = t.req.Pos, t.req.Topic
		if t.held.Offset >= 0 {
			t.life.Placed(record.QueueID(t.held.Queue), record.QueueOffset(t.held.Offset))
		} else if t.e.placeLate(ctx, &m, t.queues) {
			t.life.Placed(record.QueueID(m.Queue), record.QueueOffset(m.Offset))
		}
	}
	at := int64(0)
	if r, ref, err := t.e.log.Read(first, 0); err == nil {
		at = r.Time
		ref.Release()
	}
	return t.life.Forget(events, first, at), nil
}

var errEnd = errors.New("enough read")

// begin reads the message, or takes up what an earlier call left.
func (t *tracing) begin() (err error) {
	topic, pos := record.TopicID(t.req.Topic), record.Pos(t.req.Pos)
	if len(t.req.State) > 0 {
		t.life, err = trace.Decode(t.req.State, topic, pos)
		return err
	}
	if pos >= t.end {
		return mqerr.New(mqerr.NotFound, "the log ends before position %d", pos)
	}
	m, err := t.e.readMessage(pos, false)
	switch {
	case mqerr.Is(err, mqerr.Corrupt):
		return mqerr.New(mqerr.NotFound, "no message can be read at position %d: %w", pos, err)
	case err != nil:
		return err
	case m.Topic != t.req.Topic:
		return mqerr.New(mqerr.NotFound, "the message at %d is of topic %d", pos, m.Topic)
	}
	t.out.Message, t.life = *m, trace.New(topic, pos)
	return nil
}

// event is what happened, for the caller. A client whose number was defined before the message is one that
// still lives, if the log was read to its end and its number was not given up on the way; else its id is not
// known here.
func (t *tracing) event(e *trace.Event) brokerapi.TraceEvent {
	out := brokerapi.TraceEvent{
		Pos: brokerapi.LogPos(e.Pos), TimeMS: e.Time, What: e.What, Group: brokerapi.GroupID(e.Group), Client: e.Client, Attempt: int32(e.Attempt),
		UntilMS: e.Until, Text: e.Text,
	}
	if _, other := t.life.Clients[e.Unnamed]; e.Unnamed != 0 && !other && !t.out.More && t.names[e.Unnamed] != "" {
		out.Client = t.names[e.Unnamed]
	}
	return out
}
