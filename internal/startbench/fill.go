package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/controller"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/store/record"
)

// filler is a controller and a broker in this process, with the names that `perigee dev` gives them.
type filler struct {
	p      plan
	client controllerv1.ControllerServiceClient
	broker *broker.Broker
	proxy  brokerapi.Broker
	topics []brokerapi.TopicID
	groups []brokerapi.GroupID
	saved  atomic.Int64 // position of the newest checkpoint
	ids    atomic.Int64
}

// fill fills the directory and kills this process when the log behind the newest checkpoint is as long as
// it gets.
func fill(ctx context.Context, p plan) error {
	f := &filler{p: p}
	if err := f.open(ctx); err != nil {
		return err
	}
	began := time.Now()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"topics and groups", f.define}, {"messages", f.send}, {"timers", f.delay}, {"groups begin", f.begin}, {"leases", f.lease}, {"log behind the checkpoint", f.tail},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("filled: %s, after %.1f s\n", step.name, time.Since(began).Seconds())
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func (f *filler) open(ctx context.Context) error {
	pipe := bufconn.Listen(1 << 18)
	conn, err := grpc.NewClient("passthrough:///controller", append(rpc.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }))...)
	if err != nil {
		return err
	}
	f.client = controllerv1.NewControllerServiceClient(conn)
	c, err := controller.New(controller.Options{ID: "dev", DataDir: filepath.Join(f.p.dir, "controller"), Listener: pipe, Release: "bench"})
	if err != nil {
		return err
	}
	f.broker = broker.New(broker.Options{
		DataDir: filepath.Join(f.p.dir, "broker"), Group: "dev", ID: 1, Advertise: "127.0.0.1:1", Controller: conn, Release: "bench",
		Engine: engine.Options{
			Async: true, CheckpointInterval: f.p.interval,
			Events: engine.Events{Checkpointed: func(pos record.Pos, took time.Duration) {
				f.saved.Store(int64(pos))
				fmt.Printf("checkpoint at %d MiB took %.2f s\n", pos>>20, took.Seconds())
			}},
		},
	})
	failed := make(chan error, 2)
	go func() { failed <- c.Run(ctx) }()
	go func() { failed <- f.broker.Run(ctx) }()
	select {
	case <-f.broker.Ready():
	case err := <-failed:
		return err
	}
	f.proxy, err = f.broker.Attach("fill", brokerapi.Events{})
	return err
}

// define makes topics and groups; they are in the broker's log when it returns.
func (f *filler) define(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64) // raft commits those that wait together
	f.topics, f.groups = make([]brokerapi.TopicID, f.p.topics), make([]brokerapi.GroupID, f.p.groups)
	for i := range f.topics {
		g.Go(func() error {
			t, err := f.client.PutTopic(ctx, &controllerv1.PutTopicRequest{Name: fmt.Sprintf("topic-%05d", i), Type: controllerv1.TopicType_TOPIC_TYPE_MIXED})
			f.topics[i] = brokerapi.TopicID(t.GetTopic().GetId())
			return err
		})
	}
	for i := range f.groups {
		g.Go(func() error {
			r, err := f.client.PutGroup(ctx, &controllerv1.PutGroupRequest{Name: fmt.Sprintf("group-%02d", i)})
			f.groups[i] = brokerapi.GroupID(r.GetGroup().GetId())
			return err
		})
	}
	return g.Wait()
}

// requests makes n calls, 32 at a time, and waits for them. call says when it is done.
func requests(ctx context.Context, n int, call func(i int, done func(error))) error {
	free := make(chan error, 32)
	for range cap(free) {
		free <- nil
	}
	for i := 0; i < n+cap(free); i++ {
		select {
		case err := <-free:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if i < n {
			call(i, func(err error) { free <- err })
		}
	}
	return nil
}

// batch is how many messages are sent in a request.
const batch = 250

func (f *filler) message(deliverAt int64) brokerapi.Message {
	m := brokerapi.Message{Queue: brokerapi.AnyQueue, Type: brokerapi.Normal, DeliverAt: deliverAt, ID: fmt.Appendf(nil, "01AABBCCDDEEFF%020d", f.ids.Add(1)), Body: make([]byte, f.p.body)}
	if deliverAt > 0 {
		m.Type = brokerapi.Delay
	}
	return m
}

func (f *filler) store(ctx context.Context, n int, deliverAt func() int64) error {
	size := min(batch, max(1, n/f.p.topics))
	return requests(ctx, (n+size-1)/size, func(i int, done func(error)) {
		req := &brokerapi.SendRequest{Topic: f.topics[i%len(f.topics)], Messages: make([]brokerapi.Message, size)}
		for k := range req.Messages {
			req.Messages[k] = f.message(deliverAt())
		}
		f.proxy.Send(req, func(_ *brokerapi.SendReply, err error) { done(err) })
	})
}

func now() int64 { return 0 }

func (f *filler) send(ctx context.Context) error {
	return f.store(ctx, f.p.messages-f.p.timers, now)
}

// delay stores messages that are due in the next 30 days, but not today.
func (f *filler) delay(ctx context.Context) error {
	const day = 24 * 3600 * 1000
	today, n := time.Now().UnixMilli(), atomic.Int64{}
	return f.store(ctx, f.p.timers, func() int64 { return today + day + n.Add(7919*1000)%(29*day) })
}

// begin makes each group receive from each topic and acknowledge that.
func (f *filler) begin(ctx context.Context) error {
	return requests(ctx, len(f.topics)*len(f.groups), func(i int, done func(error)) {
		topic, group := f.topics[i/len(f.groups)], f.groups[i%len(f.groups)]
		f.pop(topic, group, 8, func(r *brokerapi.PopReply) {
			ack := &brokerapi.AckRequest{Topic: topic, Group: group}
			for _, m := range r.Messages {
				ack.Handles = append(ack.Handles, brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch})
			}
			f.proxy.Ack(ack, func(_ *brokerapi.AckReply, err error) { done(err) })
		}, done)
	})
}

// lease leases messages for ten hours, as many as a client takes at a time.
func (f *filler) lease(ctx context.Context) error {
	const size = 32
	return requests(ctx, f.p.inFlight/size, func(i int, done func(error)) {
		f.pop(f.topics[i%len(f.topics)], f.groups[0], size, func(*brokerapi.PopReply) { done(nil) }, done)
	})
}

// pop gives the messages to then, or an error to failed.
func (f *filler) pop(topic brokerapi.TopicID, group brokerapi.GroupID, n int, then func(*brokerapi.PopReply), failed func(error)) {
	req := &brokerapi.PopRequest{Topic: topic, Group: group, Client: "client", Max: n, Invisible: 10 * time.Hour}
	f.proxy.Pop(req, func(r *brokerapi.PopReply, err error) {
		if err != nil {
			failed(err)
			return
		}
		then(r)
		r.Release()
	})
}

// tail stores more until a checkpoint is as far behind as the broker lets it get: that is when the next
// one is finished.
func (f *filler) tail(ctx context.Context) error {
	longest, end := int64(0), time.Now().Add(2*time.Minute)
	for n := 0; time.Now().Before(end); n++ {
		if err := f.store(ctx, 32*batch, now); err != nil {
			return err
		}
		behind := f.behind()
		if n > 0 && behind < longest*9/10 { // it was saved in between: now it grows to that again
			for f.behind() < longest*9/10 && time.Now().Before(end) {
				if err := f.store(ctx, 8*batch, now); err != nil {
					return err
				}
			}
			break
		}
		longest = max(longest, behind)
	}
	fmt.Printf("killed with %d MiB of log behind the newest checkpoint\n", f.behind()>>20)
	return nil
}

func (f *filler) behind() int64 { return f.broker.Written() - f.saved.Load() }
