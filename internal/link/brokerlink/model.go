package brokerlink

import (
	"context"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/codec"
	"github.com/perigee-mq/perigee/internal/link"
)

// oneCall is a call whose reply is one value. If that holds messages, its bytes stay counted in the
// window of pops until they are released.
type oneCall[R any] struct {
	link.Call
	c      *Client
	decode func(body []byte, release func()) (R, bool, error) // bool: release will be called
	done   func(R, error)
}

func (o *oneCall[R]) Answer(body []byte, failed bool) bool {
	var none R
	if failed {
		o.done(none, codec.DecodeError(body))
		return false
	}
	size := len(body)
	reply, keep, err := o.decode(body, func() { o.c.l.Return(link.Pop, size) })
	if err != nil {
		o.done(none, o.c.garbled(err))
		return false
	}
	o.done(reply, nil)
	return keep
}

func (o *oneCall[R]) Fail(err error) {
	var none R
	o.done(none, err)
}

func (o *oneCall[R]) Late([]byte, bool) {}

// start sends a call of which only the way to read its reply is special.
func start[R any](c *Client, op codec.Op, class link.Class, e *codec.Encoder, h *brokerapi.Head,
	decode func([]byte, func()) (R, bool, error), done func(R, error),
) {
	call := &oneCall[R]{c: c, decode: decode, done: done}
	fill(&call.Call, op, class, e, h, call)
	c.l.Start(&call.Call)
}

// EndTxn gives the verdict of a half message.
func (c *Client) EndTxn(req *brokerapi.EndTxnRequest, done func(*brokerapi.EndTxnReply, error)) {
	var e codec.Encoder
	e.EndTxn(req)
	start(c, codec.OpEndTxn, link.Control, &e, &req.Head, func([]byte, func()) (*brokerapi.EndTxnReply, bool, error) {
		return &brokerapi.EndTxnReply{}, false, nil
	}, done)
}

// Checks takes checks of half messages.
func (c *Client) Checks(req *brokerapi.ChecksRequest, done func(*brokerapi.ChecksReply, error)) {
	var e codec.Encoder
	e.Checks(req)
	start(c, codec.OpChecks, link.Pop, &e, &req.Head, func(body []byte, release func()) (*brokerapi.ChecksReply, bool, error) {
		checks, more, err := codec.DecodeChecksReply(body)
		if len(checks) == 0 {
			release = nil
		}
		reply := brokerapi.NewChecksReply(checks, release)
		reply.More = more
		return reply, release != nil, err
	}, done)
}

// Recall takes a delayed message back.
func (c *Client) Recall(req *brokerapi.RecallRequest, done func(*brokerapi.RecallReply, error)) {
	var e codec.Encoder
	e.Recall(req)
	start(c, codec.OpRecall, link.Control, &e, &req.Head, func(body []byte, _ func()) (*brokerapi.RecallReply, bool, error) {
		reply, err := codec.DecodeRecallReply(append([]byte(nil), body...))
		return reply, false, err
	}, done)
}

// Forward moves leased messages to the dead-letter topic.
func (c *Client) Forward(req *brokerapi.ForwardRequest, done func(*brokerapi.ForwardReply, error)) {
	var e codec.Encoder
	if err := e.Forward(req); err != nil {
		done(nil, err)
		return
	}
	call := &handlesCall{c: c, n: len(req.Handles), done: func(errs []error, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(&brokerapi.ForwardReply{Errors: errs}, nil)
	}}
	fill(&call.Call, codec.OpForward, link.Control, &e, &req.Head, call)
	c.l.Start(&call.Call)
}

// Pull reads a queue from an offset on.
func (c *Client) Pull(req *brokerapi.PullRequest, done func(*brokerapi.PullReply, error)) {
	var e codec.Encoder
	if err := e.Pull(req); err != nil {
		done(nil, err)
		return
	}
	start(c, codec.OpPull, link.Pop, &e, &req.Head, func(body []byte, release func()) (*brokerapi.PullReply, bool, error) {
		got, err := codec.DecodePullReply(body)
		if err != nil {
			return nil, false, err
		}
		if len(got.Messages) == 0 {
			release = nil
		}
		reply := brokerapi.NewPullReply(got.Messages, got.Next, release)
		reply.Min, reply.Max = got.Min, got.Max
		return reply, release != nil, nil
	}, done)
}

// askJSON sends a request whose form is JSON and waits for its reply.
func askJSON[R any](ctx context.Context, c *Client, op codec.Op, req any) (*R, error) {
	var e codec.Encoder
	if err := e.JSON(req); err != nil {
		return nil, err
	}
	body, err := c.ask(ctx, op, &e)
	if err != nil {
		return nil, err
	}
	reply, err := codec.DecodeJSON[R](body)
	if err != nil {
		return nil, c.garbled(err)
	}
	return reply, nil
}

// Producers names the topics of which this proxy has producers.
func (c *Client) Producers(ctx context.Context, req *brokerapi.ProducersRequest) (*brokerapi.ProducersReply, error) {
	return askJSON[brokerapi.ProducersReply](ctx, c, codec.OpProducers, req)
}

// SetOffsets stores positions of pull consumers.
func (c *Client) SetOffsets(ctx context.Context, req *brokerapi.SetOffsetsRequest) (*brokerapi.SetOffsetsReply, error) {
	return askJSON[brokerapi.SetOffsetsReply](ctx, c, codec.OpSetOffsets, req)
}

// Offset asks for one offset of a queue.
func (c *Client) Offset(ctx context.Context, req *brokerapi.OffsetRequest) (*brokerapi.OffsetReply, error) {
	return askJSON[brokerapi.OffsetReply](ctx, c, codec.OpOffset, req)
}

// Reset moves a group's position.
func (c *Client) Reset(ctx context.Context, req *brokerapi.ResetRequest) (*brokerapi.ResetReply, error) {
	return askJSON[brokerapi.ResetReply](ctx, c, codec.OpReset, req)
}

// SyncLite changes what a client of a lite group subscribes to.
func (c *Client) SyncLite(ctx context.Context, req *brokerapi.SyncLiteRequest) (*brokerapi.SyncLiteReply, error) {
	return askJSON[brokerapi.SyncLiteReply](ctx, c, codec.OpSyncLite, req)
}

// LiteGone takes the notices of ended lite subscriptions.
func (c *Client) LiteGone(ctx context.Context, req *brokerapi.LiteGoneRequest) (*brokerapi.LiteGoneReply, error) {
	return askJSON[brokerapi.LiteGoneReply](ctx, c, codec.OpLiteGone, req)
}

// Redrive stores dead letters again.
func (c *Client) Redrive(ctx context.Context, req *brokerapi.RedriveRequest) (*brokerapi.RedriveReply, error) {
	return askJSON[brokerapi.RedriveReply](ctx, c, codec.OpRedrive, req)
}

// Find looks for stored messages.
func (c *Client) Find(ctx context.Context, req *brokerapi.FindRequest) (*brokerapi.FindReply, error) {
	return askJSON[brokerapi.FindReply](ctx, c, codec.OpFind, req)
}

// Trace tells the life of one stored message.
func (c *Client) Trace(ctx context.Context, req *brokerapi.TraceRequest) (*brokerapi.TraceReply, error) {
	return askJSON[brokerapi.TraceReply](ctx, c, codec.OpTrace, req)
}

// Drain asks what is left of message groups on a topic that grows.
func (c *Client) Drain(ctx context.Context, req *brokerapi.DrainRequest) (*brokerapi.DrainReply, error) {
	return askJSON[brokerapi.DrainReply](ctx, c, codec.OpDrain, req)
}

// LiteList lists lite topics.
func (c *Client) LiteList(ctx context.Context, req *brokerapi.LiteListRequest) (*brokerapi.LiteListReply, error) {
	return askJSON[brokerapi.LiteListReply](ctx, c, codec.OpLiteList, req)
}
