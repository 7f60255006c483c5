package server

import (
	"context"
	"fmt"
	"log/slog"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// EnsureTopic makes a topic of the brokers' own with a queue on the caller's shard, and waits until
// the shard has logged it.
func (s *Server) EnsureTopic(ctx context.Context, r *controllerv1.EnsureTopicRequest) (*controllerv1.EnsureTopicResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	c := state.EnsureTopic{Name: r.GetName(), Shard: state.ShardID(r.GetShard()), NowMS: s.o.Now().UnixMilli()}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	done, err := s.ensureTopic(ctx, c)
	if err != nil {
		return nil, err
	}
	t := done.Topic
	if done.Created || done.Changed {
		s.o.Log.LogAttrs(ctx, slog.LevelInfo, "topic of a broker's own stored", slog.String("topic", t.Name), slog.Uint64("id", uint64(t.ID)),
			slog.Uint64("shard", uint64(c.Shard)), slog.Bool("created", done.Created))
	}
	if err := s.o.Registry.AwaitTopic(ctx, t, t.Version, false); err != nil {
		return nil, err
	}
	return &controllerv1.EnsureTopicResponse{Topic: topicProto(t)}, nil
}

// ensureTopic applies the command unless the topic is as wanted.
func (s *Server) ensureTopic(ctx context.Context, c state.EnsureTopic) (state.Result, error) {
	return s.once(fmt.Sprintf("own topic %s on %d", c.Name, c.Shard), func() (state.Result, error) {
		var have *state.Topic
		s.o.Node.View(func(st *state.State) { have = st.Topic(c.Name) })
		if have != nil && have.On(c.Shard) > 0 {
			return state.Result{Topic: have}, s.sure(ctx)
		}
		return s.o.Node.Apply(c)
	})
}

// checkOwn refuses to make a topic of the brokers' own in a form that brokers could not use.
func checkOwn(c state.PutTopic) error {
	if state.OwnTopic(c.Name) && c.Type != 0 && c.Type != state.Normal {
		return mqerr.New(mqerr.Invalid, "topic %q takes dead letters or unanswered transactions: its type is NORMAL", c.Name)
	}
	return nil
}
