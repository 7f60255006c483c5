package brokerlink

import (
	"context"
	"errors"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/codec"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Client is a broker at the other end of a link. Its events come on goroutines of the link.
type Client struct {
	l *link.Client
}

var _ brokerapi.Broker = (*Client)(nil)

// NewClient starts the client's side of a link over t.
func NewClient(t link.Transport, ev brokerapi.Events, o link.Options) *Client {
	event := func(payload []byte) error {
		ready, notice, err := codec.DecodeReady(payload)
		if err == nil && ev.Notice != nil && notice != 0 {
			ev.Notice(notice)
		}
		if err == nil && ev.Ready != nil && len(ready) > 0 {
			ev.Ready(ready)
		}
		return err
	}
	return &Client{l: link.NewClient(t, link.ClientOptions{Options: o, Event: event, Down: ev.Down})}
}

// Done is closed when the link has ended. Calls may still be about to be answered.
func (c *Client) Done() <-chan struct{} { return c.l.Done() }

// Err is why the link has ended, nil while it works.
func (c *Client) Err() error { return c.l.Err() }

// Draining tells whether the broker takes no more requests.
func (c *Client) Draining() bool { return c.l.Draining() }

// Close ends the link and returns when every call in flight is answered. It must not be called from
// an answer or an event.
func (c *Client) Close() error {
	c.l.Close()
	c.l.Wait()
	return nil
}

// fill prepares a call.
func fill(call *link.Call, op codec.Op, class link.Class, e *codec.Encoder, h *brokerapi.Head, to link.Receiver) {
	call.Op, call.Class, call.Parts, call.To = uint8(op), class, e.Parts(), to
	if h != nil {
		call.Deadline = h.Deadline
	}
}

// Send stores messages.
func (c *Client) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	var e codec.Encoder
	if err := e.Send(req); err != nil {
		done(nil, err)
		return
	}
	call := &sendCall{c: c, n: len(req.Messages), done: done}
	fill(&call.Call, codec.OpSend, link.Send, &e, &req.Head, call)
	c.l.Start(&call.Call)
}

type sendCall struct {
	link.Call
	c    *Client
	n    int
	done func(*brokerapi.SendReply, error)
}

func (s *sendCall) Answer(body []byte, failed bool) bool {
	if failed {
		s.done(nil, codec.DecodeError(body))
		return false
	}
	reply, err := codec.DecodeSendReply(body, s.n)
	if err != nil {
		s.done(nil, s.c.garbled(err))
		return false
	}
	s.done(reply, nil)
	return false
}

func (s *sendCall) Fail(err error)    { s.done(nil, err) }
func (s *sendCall) Late([]byte, bool) {}

// garbled ends a link whose broker answers what cannot be understood.
func (c *Client) garbled(err error) error {
	c.l.Close()
	return mqerr.New(mqerr.UnknownOutcome, "the broker's answer: %w", err)
}

// Pop leases messages.
func (c *Client) Pop(req *brokerapi.PopRequest, done func(*brokerapi.PopReply, error)) {
	var e codec.Encoder
	if err := e.Pop(req); err != nil {
		done(nil, err)
		return
	}
	call := &popCall{c: c, topic: req.Topic, group: req.Group, who: req.Principal, done: done}
	fill(&call.Call, codec.OpPop, link.Pop, &e, &req.Head, call)
	c.l.Start(&call.Call)
}

type popCall struct {
	link.Call
	c     *Client
	topic brokerapi.TopicID
	group brokerapi.GroupID
	who   brokerapi.Principal
	done  func(*brokerapi.PopReply, error)
}

func (p *popCall) Answer(body []byte, failed bool) bool {
	if failed {
		p.done(nil, codec.DecodeError(body))
		return false
	}
	messages, more, full, err := codec.DecodePopReply(body)
	if err != nil {
		p.done(nil, p.c.garbled(err))
		return false
	}
	var release func()
	keep := len(messages) > 0
	if keep {
		size := len(body)
		release = func() { p.c.l.Return(link.Pop, size) }
	}
	reply := brokerapi.NewPopReply(messages, release)
	reply.More, reply.Full = more, full
	p.done(reply, nil)
	return keep
}

func (p *popCall) Fail(err error) { p.done(nil, err) }

// Late gives back what was leased for somebody who has been told of a failure.
func (p *popCall) Late(body []byte, failed bool) {
	if failed {
		return
	}
	messages, _, _, err := codec.DecodePopReply(body)
	if err != nil || len(messages) == 0 {
		return
	}
	p.c.Change(giveBack(p.topic, p.group, p.who, messages), func(*brokerapi.ChangeReply, error) {})
}

// Ack ends messages for a group.
func (c *Client) Ack(req *brokerapi.AckRequest, done func(*brokerapi.AckReply, error)) {
	var e codec.Encoder
	if err := e.Ack(req); err != nil {
		done(nil, err)
		return
	}
	call := &handlesCall{c: c, n: len(req.Handles), done: func(errs []error, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(&brokerapi.AckReply{Errors: errs}, nil)
	}}
	fill(&call.Call, codec.OpAck, link.Control, &e, &req.Head, call)
	c.l.Start(&call.Call)
}

// Change moves the end of leases.
func (c *Client) Change(req *brokerapi.ChangeRequest, done func(*brokerapi.ChangeReply, error)) {
	var e codec.Encoder
	if err := e.Change(req); err != nil {
		done(nil, err)
		return
	}
	call := &handlesCall{c: c, n: len(req.Handles), done: func(errs []error, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(&brokerapi.ChangeReply{Errors: errs}, nil)
	}}
	fill(&call.Call, codec.OpChange, link.Control, &e, &req.Head, call)
	c.l.Start(&call.Call)
}

// handlesCall is an ack or a change: one error per handle.
type handlesCall struct {
	link.Call
	c    *Client
	n    int
	done func([]error, error)
}

func (h *handlesCall) Answer(body []byte, failed bool) bool {
	if failed {
		h.done(nil, codec.DecodeError(body))
		return false
	}
	errs, err := codec.DecodeErrors(body, h.n)
	if err != nil {
		h.done(nil, h.c.garbled(err))
		return false
	}
	h.done(errs, nil)
	return false
}

func (h *handlesCall) Fail(err error)    { h.done(nil, err) }
func (h *handlesCall) Late([]byte, bool) {}

// Alive reports clients. More than one request can list are reported in several.
func (c *Client) Alive(ctx context.Context, clients []string) error {
	for {
		n := min(len(clients), codec.ListMax)
		var e codec.Encoder
		if err := e.Alive(clients[:n]); err != nil {
			return err
		}
		if _, err := c.ask(ctx, codec.OpAlive, &e); err != nil {
			return err
		}
		if clients = clients[n:]; len(clients) == 0 {
			return nil
		}
	}
}

// EndSession says that a client has said goodbye.
func (c *Client) EndSession(ctx context.Context, client string) error {
	var e codec.Encoder
	e.EndSession(client)
	_, err := c.ask(ctx, codec.OpEndSession, &e)
	return err
}

// DescribeGroup shows the state of a group on a topic.
func (c *Client) DescribeGroup(ctx context.Context, topic brokerapi.TopicID, group brokerapi.GroupID) ([]brokerapi.GroupQueue, error) {
	var e codec.Encoder
	e.Describe(topic, group)
	body, err := c.ask(ctx, codec.OpDescribeGroup, &e)
	if err != nil {
		return nil, err
	}
	qs, err := codec.DecodeGroupQueues(body)
	if err != nil {
		return nil, c.garbled(err)
	}
	return qs, nil
}

// DescribeTopic shows the state of a topic.
func (c *Client) DescribeTopic(ctx context.Context, topic brokerapi.TopicID) ([]brokerapi.TopicQueue, error) {
	var e codec.Encoder
	e.Describe(topic, 0)
	body, err := c.ask(ctx, codec.OpDescribeTopic, &e)
	if err != nil {
		return nil, err
	}
	qs, err := codec.DecodeTopicQueues(body)
	if err != nil {
		return nil, c.garbled(err)
	}
	return qs, nil
}

// ask sends a request and waits for its answer.
func (c *Client) ask(ctx context.Context, op codec.Op, e *codec.Encoder) ([]byte, error) {
	call := &waitCall{answer: make(chan answer, 1)}
	fill(&call.Call, op, link.Control, e, nil, call)
	call.Deadline, _ = ctx.Deadline()
	c.l.Start(&call.Call)
	select {
	case a := <-call.answer:
		return a.body, a.err
	case <-ctx.Done():
	}
	kind := mqerr.Cancelled
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		kind = mqerr.Timeout
	}
	c.l.Abandon(&call.Call,
		mqerr.New(kind, "gave up before the request was sent to the broker: %w", ctx.Err()),
		mqerr.New(mqerr.UnknownOutcome, "gave up waiting for the broker: %w", ctx.Err()))
	a := <-call.answer
	return a.body, a.err
}

type answer struct {
	body []byte
	err  error
}

type waitCall struct {
	link.Call
	answer chan answer
}

func (w *waitCall) Answer(body []byte, failed bool) bool {
	if failed {
		w.answer <- answer{err: codec.DecodeError(body)}
		return false
	}
	w.answer <- answer{body: body}
	return false
}

func (w *waitCall) Fail(err error)    { w.answer <- answer{err: err} }
func (w *waitCall) Late([]byte, bool) {}
