package server

import (
	"context"
	"fmt"
	"log/slog"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// PutTopic creates or changes a topic and waits until its brokers have logged it.
func (s *Server) PutTopic(ctx context.Context, r *controllerv1.PutTopicRequest) (*controllerv1.PutTopicResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	c, err := putTopicOf(r)
	if err != nil {
		return nil, err
	}
	if err := s.checkFlush(c); err != nil {
		return nil, err
	}
	c.NowMS, c.Most = s.o.Now().UnixMilli(), s.o.TopicsMax
	done, err := s.putTopic(ctx, c)
	if err != nil {
		return nil, err
	}
	t := done.Topic
	if done.Created || done.Changed {
		s.o.Log.LogAttrs(ctx, slog.LevelInfo, "topic stored", slog.String("topic", t.Name), slog.Uint64("id", uint64(t.ID)), slog.String("type", t.Type.String()),
			slog.Int("queues", t.Queues()), slog.Bool("created", done.Created), slog.String("principal", r.GetPrincipal()))
	}
	if c.Mode == state.Ensure {
		err = s.o.Registry.AwaitTopic(ctx, t, t.Created, false)
	} else {
		err = s.o.Registry.AwaitTopic(ctx, t, t.Version, true)
	}
	if err != nil {
		return nil, err
	}
	return &controllerv1.PutTopicResponse{Topic: topicProto(t), Created: done.Created, Changed: done.Changed}, nil
}

// checkFlush refuses a flush policy where it would mean nothing: a broker group of several replicas has one mode
// for everything. A topic that had one before its group got more replicas keeps it for the groups of one.
func (s *Server) checkFlush(c state.PutTopic) (err error) {
	if c.Flush == 0 {
		return nil
	}
	s.o.Node.View(func(st *state.State) {
		have := st.Topic(c.Name)
		for _, h := range st.Shards() {
			if h.Replicated() && (have == nil || have.On(h.ID) > 0) {
				err = mqerr.New(mqerr.Invalid, "topic %q can't have a flush policy of its own: broker group %q has several replicas, whose mode (%v) goes for all topics", c.Name, h.Name, h.Commit)
			}
		}
	})
	return err
}

// putTopic applies the command, unless it is to ensure a topic that exists. Many proxies ensure the
// same topic at the same moment: one entry is enough for them.
func (s *Server) putTopic(ctx context.Context, c state.PutTopic) (state.Result, error) {
	if c.Mode != state.Ensure {
		return s.o.Node.Apply(c)
	}
	return s.once("topic "+c.Name, func() (state.Result, error) {
		var have *state.Topic
		s.o.Node.View(func(st *state.State) { have = st.Topic(c.Name) })
		if have != nil {
			return state.Result{Topic: have}, s.sure(ctx)
		}
		return s.o.Node.Apply(c)
	})
}

// sure refuses an answer from the state alone if another node may have changed it.
func (s *Server) sure(ctx context.Context) error { return s.o.Node.Verify(ctx) }

func (s *Server) once(name string, f func() (state.Result, error)) (state.Result, error) {
	v, err, _ := s.flight.Do(name, func() (any, error) { return f() })
	if err != nil {
		return state.Result{}, err
	}
	r, ok := v.(state.Result)
	if !ok {
		return r, fmt.Errorf("%s: answered with %T", name, v)
	}
	return r, nil
}

func putTopicOf(r *controllerv1.PutTopicRequest) (state.PutTopic, error) {
	c := state.PutTopic{Name: r.GetName(), Queues: int(r.GetQueues()), Limits: limitsOf(r.GetLimits())}
	var ok bool
	if c.Type, ok = topicTypeOf(r.GetType()); !ok {
		return c, mqerr.New(mqerr.Invalid, "topic %q: unknown type %d", c.Name, r.GetType())
	}
	if c.Flush = state.Flush(r.GetFlush()); int32(c.Flush) != int32(r.GetFlush()) {
		return c, mqerr.New(mqerr.Invalid, "topic %q: unknown flush policy %d", c.Name, r.GetFlush())
	}
	if c.Mode, ok = modeOf(r.GetMode()); !ok {
		return c, mqerr.New(mqerr.Invalid, "topic %q: unknown mode %d", c.Name, r.GetMode())
	}
	if err := c.Validate(); err != nil {
		return c, err
	}
	return c, checkOwn(c)
}

func topicTypeOf(p controllerv1.TopicType) (state.TopicType, bool) {
	if p == controllerv1.TopicType_TOPIC_TYPE_UNSPECIFIED {
		return 0, true
	}
	for t, q := range typeToProto {
		if p == q {
			return t, true
		}
	}
	return 0, false
}

func modeOf(p controllerv1.PutMode) (state.Mode, bool) {
	return state.Mode(p), p >= 0 && p <= controllerv1.PutMode(state.Ensure)
}

// DeleteTopic deletes a topic and waits until its brokers have logged that.
func (s *Server) DeleteTopic(ctx context.Context, r *controllerv1.DeleteTopicRequest) (*controllerv1.DeleteTopicResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	if !state.OwnTopic(r.GetName()) {
		if err := state.CheckTopicName(r.GetName()); err != nil {
			return nil, err
		}
	}
	done, err := s.o.Node.Apply(state.DeleteTopic{Name: r.GetName()})
	if err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "topic deleted", slog.String("topic", done.Topic.Name), slog.Uint64("id", uint64(done.Topic.ID)), slog.String("principal", r.GetPrincipal()))
	if err := s.o.Registry.AwaitGone(ctx, state.TopicDeleted{Topic: done.Topic, Version: done.Version}); err != nil {
		return nil, err
	}
	return &controllerv1.DeleteTopicResponse{}, nil
}
