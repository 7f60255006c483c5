package ctl

import (
	"context"
	"errors"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

// ensuredQueues is how many queues a topic gets that is made on first use, in all.
const ensuredQueues = 8

// EnsureTopic makes a topic for messages of every type unless it exists, and returns once it is in
// the routing table. Callers that ask for the same name share one request.
func (c *Client) EnsureTopic(ctx context.Context, name string) error {
	return c.ensure(ctx, "topic "+name, func(s *route.Snapshot) bool { return s.Topic([]byte(name)) != nil },
		func(ctx context.Context) (func(*route.Snapshot) bool, error) {
			r, err := c.rpc.PutTopic(ctx, &controllerv1.PutTopicRequest{
				Name: name, Type: controllerv1.TopicType_TOPIC_TYPE_MIXED, Queues: ensuredQueues, Mode: controllerv1.PutMode_PUT_MODE_ENSURE,
			})
			id := brokerapi.TopicID(r.GetTopic().GetId())
			return func(s *route.Snapshot) bool { return s.TopicByID(id) != nil }, err
		})
}

// EnsureGroup makes an unordered consumer group unless it exists, and returns once it is in the
// routing table.
func (c *Client) EnsureGroup(ctx context.Context, name string) error {
	return c.ensure(ctx, "group "+name, func(s *route.Snapshot) bool { return s.Group([]byte(name)) != nil },
		func(ctx context.Context) (func(*route.Snapshot) bool, error) {
			r, err := c.rpc.PutGroup(ctx, &controllerv1.PutGroupRequest{
				Name: name, Ordered: new(false), Mode: controllerv1.PutMode_PUT_MODE_ENSURE,
			})
			id := brokerapi.GroupID(r.GetGroup().GetId())
			return func(s *route.Snapshot) bool { return s.GroupByID(id) != nil }, err
		})
}

// ensure asks the controller once, however many callers wait, and waits for the table. The request
// goes on when the caller that started it leaves.
func (c *Client) ensure(ctx context.Context, what string, there func(*route.Snapshot) bool,
	put func(context.Context) (func(*route.Snapshot) bool, error),
) error {
	if there(c.o.Routes.Load()) {
		return nil
	}
	result := c.puts.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putTimeout)
		defer cancel()
		shown, err := put(ctx)
		if err != nil {
			return nil, rpc.FromStatus(err)
		}
		_, err = c.o.Routes.WaitFor(ctx, shown)
		return nil, waited(err, what)
	})
	select {
	case r := <-result:
		return r.Err
	case <-ctx.Done():
		return waited(ctx.Err(), what)
	}
}

// waited turns the error of a context into one of ours.
func waited(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return mqerr.New(mqerr.Timeout, "%s is not in the routing table yet: %w", what, err)
	case errors.Is(err, context.Canceled):
		return mqerr.New(mqerr.Cancelled, "waiting for %s: %w", what, err)
	}
	return err
}
