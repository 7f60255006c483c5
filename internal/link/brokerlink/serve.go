package brokerlink

import (
	"context"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/codec"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// question answers a request whose form is JSON.
type question func(ctx context.Context, b brokerapi.Broker, body []byte, e *codec.Encoder) error

func asked[Q, R any](call func(brokerapi.Broker, context.Context, *Q) (*R, error)) question {
	return func(ctx context.Context, b brokerapi.Broker, body []byte, e *codec.Encoder) error {
		req, err := codec.DecodeJSON[Q](body)
		if err != nil {
			return err
		}
		reply, err := call(b, ctx, req)
		if err != nil {
			return err
		}
		return e.JSON(reply)
	}
}

var questions = map[codec.Op]question{
	codec.OpProducers:  asked(brokerapi.Broker.Producers),
	codec.OpSetOffsets: asked(brokerapi.Broker.SetOffsets),
	codec.OpOffset:     asked(brokerapi.Broker.Offset),
	codec.OpReset:      asked(brokerapi.Broker.Reset),
	codec.OpSyncLite:   asked(brokerapi.Broker.SyncLite),
	codec.OpLiteGone:   asked(brokerapi.Broker.LiteGone),
	codec.OpRedrive:    asked(brokerapi.Broker.Redrive),
	codec.OpFind:       asked(brokerapi.Broker.Find),
	codec.OpTrace:      asked(brokerapi.Broker.Trace),
	codec.OpDrain:      asked(brokerapi.Broker.Drain),
	codec.OpLiteList:   asked(brokerapi.Broker.LiteList),
}

func (s *Server) endTxn(r *link.Request) error {
	req, err := codec.DecodeEndTxn(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	s.b.EndTxn(req, func(_ *brokerapi.EndTxnReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		s.answer(r, &codec.Encoder{}, false, nil)
	})
	return nil
}

func (s *Server) recall(r *link.Request) error {
	req, err := codec.DecodeRecall(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	s.b.Recall(req, func(reply *brokerapi.RecallReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		var e codec.Encoder
		e.RecallReply(reply)
		s.answer(r, &e, false, nil)
	})
	return nil
}

func (s *Server) forward(r *link.Request) error {
	req, err := codec.DecodeForward(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	s.b.Forward(req, func(reply *brokerapi.ForwardReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		s.errors(r, reply.Errors)
	})
	return nil
}

func (s *Server) checks(r *link.Request) error {
	req, err := codec.DecodeChecks(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	s.b.Checks(req, func(reply *brokerapi.ChecksReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		var e codec.Encoder
		s.messages(r, &e, e.ChecksReply(reply), reply.Release)
	})
	return nil
}

func (s *Server) pull(r *link.Request) error {
	req, err := codec.DecodePull(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	req.MaxBytes = min(req.MaxBytes, popBytesMax)
	s.b.Pull(req, func(reply *brokerapi.PullReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		var e codec.Encoder
		s.messages(r, &e, e.PullReply(reply), reply.Release)
	})
	return nil
}

// messages answers with messages that nobody has leased: they are released when they have left, or can't.
func (s *Server) messages(r *link.Request, e *codec.Encoder, err error, release func()) {
	if err == nil && e.Size() > link.MessageMax {
		err = mqerr.New(mqerr.Internal, "a reply of %d bytes, at most %d can pass between broker and proxy", e.Size(), link.MessageMax)
	}
	if err != nil {
		release()
		s.fail(r, err)
		return
	}
	s.answer(r, e, false, func(bool) { release() })
}
