package server

import (
	"context"
	"log/slog"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// GrowTopic takes one step of the growth of a topic with message groups. The last one waits until the
// brokers have logged the queues; who asks watches the brokers at the others.
func (s *Server) GrowTopic(ctx context.Context, r *controllerv1.GrowTopicRequest) (*controllerv1.GrowTopicResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	c, err := s.growOf(r)
	if err != nil {
		return nil, err
	}
	done, err := s.grow(ctx, c)
	if err != nil {
		return nil, err
	}
	t := done.Topic
	if done.Changed {
		s.o.Log.LogAttrs(ctx, slog.LevelInfo, "topic grows", slog.String("topic", t.Name), slog.String("step", r.GetStep().String()), slog.Int("queues", t.Queues()),
			slog.String("principal", r.GetPrincipal()))
	}
	if c.Step == state.GrowFinish {
		if err := s.o.Registry.AwaitTopic(ctx, t, t.Version, true); err != nil {
			return nil, err
		}
	}
	return &controllerv1.GrowTopicResponse{Topic: topicProto(t), Changed: done.Changed}, nil
}

// growthSlack is by how much a growth has to be made longer to be worth an entry: who waits for it asks
// every few moments.
const growthSlack = 1000

// grow applies the command, unless it only asks whether a growth goes on.
func (s *Server) grow(ctx context.Context, c state.GrowTopic) (state.Result, error) {
	if c.Step == state.GrowBegin {
		var have *state.Topic
		s.o.Node.View(func(st *state.State) { have = st.Topic(c.Name) })
		if have != nil && have.Growing != nil && have.Growing.Queues == c.Queues && have.Growing.UntilMS+growthSlack >= c.UntilMS {
			return state.Result{Topic: have}, s.sure(ctx)
		}
	}
	return s.o.Node.Apply(c)
}

func (s *Server) growOf(r *controllerv1.GrowTopicRequest) (state.GrowTopic, error) {
	c := state.GrowTopic{
		Name: r.GetName(), Step: state.GrowStep(r.GetStep()), Queues: int(r.GetQueues()), Began: state.Version(r.GetBeganVersion()), UntilMS: r.GetUntilMs(),
	}
	if int32(c.Step) != int32(r.GetStep()) {
		return c, mqerr.New(mqerr.Invalid, "topic %q: unknown step %d of growth", c.Name, r.GetStep())
	}
	if c.Step == state.GrowBegin {
		if ms := r.GetForMs(); ms < 1 || ms > state.GrowMaxMS {
			return c, mqerr.New(mqerr.Invalid, "topic %q: growth for %d ms: from 1 ms to %d ms are possible", c.Name, ms, int64(state.GrowMaxMS))
		}
		c.UntilMS = s.o.Now().UnixMilli() + r.GetForMs()
	}
	return c, c.Validate()
}
