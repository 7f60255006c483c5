package admin

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// protocolVersion is the version of the controller's protocol that this package speaks.
const protocolVersion = 1

// brokerPatience is how long one broker may take for one answer.
const brokerPatience = 3 * time.Second

// early returns a context that ends a little before the caller's deadline, so that the caller still
// hears which part did not answer.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(left/10, 500*time.Millisecond)))
}

// explain makes an error of a call to the controller one that people understand. What the controller
// itself said passes as it is.
func explain(err error) error {
	st, ok := status.FromError(err)
	if !ok || len(st.Details()) > 0 {
		return rpc.ToStatus(err)
	}
	switch st.Code() {
	case codes.Unavailable:
		return rpc.ToStatus(mqerr.New(mqerr.Unavailable, "the controller cannot be reached: %s", st.Message()))
	case codes.DeadlineExceeded:
		return rpc.ToStatus(mqerr.New(mqerr.Timeout, "the controller did not answer in time; what was asked for may still happen"))
	case codes.Unimplemented:
		return rpc.ToStatus(mqerr.New(mqerr.Unsupported, "the controller does not know this call: run the same release on both (%s)", st.Message()))
	}
	return rpc.ToStatus(mqerr.New(mqerr.KindOf(rpc.FromStatus(err)), "the controller: %s", st.Message()))
}

// definitions asks the controller for all topics and groups, and returns them by name: the first
// update of a watch.
func (s *Server) definitions(ctx context.Context) (*controllerv1.Definitions, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	st, err := s.o.Controller.Watch(ctx, &controllerv1.WatchRequest{Hello: &controllerv1.Hello{Version: protocolVersion, Release: s.o.Release}})
	if err != nil {
		return nil, explain(err)
	}
	up, err := st.Recv()
	if errors.Is(err, io.EOF) || err == nil && up.GetDefinitions() == nil {
		return nil, rpc.ToStatus(mqerr.New(mqerr.Unavailable, "the controller gave no definitions: try again"))
	}
	if err != nil {
		return nil, explain(err)
	}
	d := up.GetDefinitions()
	slices.SortFunc(d.Topics, func(a, b *controllerv1.Topic) int { return strings.Compare(a.GetName(), b.GetName()) })
	slices.SortFunc(d.Groups, func(a, b *controllerv1.Group) int { return strings.Compare(a.GetName(), b.GetName()) })
	return d, nil
}

// round is what one request asks brokers. A broker that failed once is not asked again: it would fail
// again, after as long a wait.
type round struct {
	brokers Brokers
	failed  map[brokerapi.ShardID]error
}

func (s *Server) round() round {
	return round{brokers: s.o.Brokers, failed: map[brokerapi.ShardID]error{}}
}

// ask calls f with the broker that leads a shard.
func (r round) ask(ctx context.Context, shard brokerapi.ShardID, f func(context.Context, brokerapi.Broker) error) error {
	if err := r.failed[shard]; err != nil {
		return err
	}
	b, _, err := r.brokers.Broker(shard)
	if err == nil {
		one, cancel := context.WithTimeout(ctx, brokerPatience)
		defer cancel()
		err = f(one, b)
		if err != nil && one.Err() != nil && ctx.Err() == nil {
			err = mqerr.New(mqerr.Timeout, "no answer within %s", brokerPatience)
		}
	}
	if err != nil && !mqerr.Is(err, mqerr.TopicNotFound) && !mqerr.Is(err, mqerr.GroupNotFound) {
		r.failed[shard] = err
	}
	return err
}
