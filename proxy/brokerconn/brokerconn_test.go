package brokerconn_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/broker/server"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest/membroker"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/brokerconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// serve starts a broker's server; address "" chooses one.
func serve(t testing.TB, o server.Options, address string) (*server.Server, string, func()) {
	t.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	s := server.New(o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			s.Drain(ctx)
			require.NoError(t, <-served)
		})
	}
	t.Cleanup(stop)
	return s, l.Addr().String(), stop
}

func options(c brokerapi.Connector) server.Options {
	return server.Options{Leader: server.Leader{Connector: c, ClusterID: "c1", Shard: 5, Epoch: 3}, Release: "test", Name: "a/1"}
}

func poolOptions(ev brokerconn.Events) brokerconn.Options {
	return brokerconn.Options{
		Name: "proxy-1", Release: "test", Cluster: func() string { return "c1" }, Events: ev,
		BackoffMin: 5 * time.Millisecond, BackoffMax: 20 * time.Millisecond,
	}
}

// ups counts the events of shards.
type ups struct {
	mu    sync.Mutex
	order []string
}

func (u *ups) add(what string, s brokerapi.ShardID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.order = append(u.order, fmt.Sprint(what, s))
}

func (u *ups) got() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string{}, u.order...)
}

func (u *ups) events() brokerconn.Events {
	return brokerconn.Events{
		Up:   func(s brokerapi.ShardID) { u.add("up", s) },
		Down: func(s brokerapi.ShardID, _ error) { u.add("down", s) },
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 2*time.Millisecond, what)
}

// overNetwork is a Connector that attaches by way of a real connection.
type overNetwork struct {
	t       *testing.T
	address string
}

func (n overNetwork) Attach(_ string, ev brokerapi.Events) (brokerapi.Broker, error) {
	c := brokerconn.Connect(poolOptions(brokerconn.Events{
		Ready: func(_ brokerapi.ShardID, r []brokerapi.Ready) {
			if ev.Ready != nil {
				ev.Ready(r)
			}
		},
	}), 5, "a", n.address)
	eventually(n.t, "connected", func() bool { return c.Err() == nil })
	return c, nil
}

func TestSuite(t *testing.T) {
	brokerapitest.Run(t, func(t *testing.T) brokerapitest.Harness {
		h, _ := brokerapitest.Memory(t)
		_, address, _ := serve(t, options(h.Connector), "")
		h.Connector = overNetwork{t, address}
		return h
	})
}

func broker(t testing.TB) *membroker.Broker {
	b := membroker.New(membroker.Options{Topics: map[brokerapi.TopicID]int{1: 4}, Groups: []brokerapi.GroupID{7}, Epoch: 3})
	t.Cleanup(func() {
		require.Zero(t, b.Held())
		require.Zero(t, b.Sessions())
		b.Stop()
	})
	return b
}

func send(b brokerapi.Broker) error {
	done := make(chan error, 1)
	b.Send(&brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{{Queue: 0, Type: brokerapi.Normal, ID: []byte("x")}}},
		func(_ *brokerapi.SendReply, err error) { done <- err })
	return <-done
}

// A pool follows the routing table, and a connection that broke comes back.
func TestPool(t *testing.T) {
	mem := broker(t)
	_, address, stop := serve(t, options(mem), "")
	var u ups
	pool := brokerconn.NewPool(poolOptions(u.events()))
	t.Cleanup(func() { require.NoError(t, pool.Close()) })

	_, _, err := pool.Broker(5)
	require.True(t, mqerr.Is(err, mqerr.Unavailable))
	require.ErrorContains(t, err, "routing table")
	shard := brokerconn.Shard{ID: 5, Name: "a"}
	pool.Update([]brokerconn.Shard{shard})
	_, _, err = pool.Broker(5)
	require.ErrorContains(t, err, "no master")

	shard.Address, shard.Epoch, shard.HasMaster = address, 2, true
	pool.Update([]brokerconn.Shard{shard})
	usable := func() bool { _, _, err := pool.Broker(5); return err == nil }
	eventually(t, "connected", usable)
	b, epoch, err := pool.Broker(5)
	require.NoError(t, err)
	require.Equal(t, brokerapi.Epoch(3), epoch, "the broker's own is higher")
	require.NoError(t, send(b))

	shard.HasMaster = false
	pool.Update([]brokerconn.Shard{shard})
	require.True(t, usable(), "the broker was elected since")
	shard.Epoch = 3
	pool.Update([]brokerconn.Shard{shard})
	require.False(t, usable())
	shard.HasMaster = true
	pool.Update([]brokerconn.Shard{shard})
	require.True(t, usable())

	stop()
	eventually(t, "down", func() bool { return len(u.got()) == 2 })
	require.Equal(t, []string{"up5", "down5"}, u.got())
	_, _, err = pool.Broker(5)
	require.True(t, mqerr.Is(err, mqerr.Unavailable), "error: %v", err)
	require.ErrorContains(t, err, address)
	require.True(t, mqerr.Is(send(b), mqerr.Unavailable), "what somebody still holds is refused at once")

	_, _, stop = serve(t, options(mem), address)
	eventually(t, "up again", usable)
	require.NoError(t, send(b))
	require.Equal(t, []string{"up5", "down5", "up5"}, u.got())

	// Another address: the old connection is given up.
	_, other, _ := serve(t, options(mem), "")
	shard.Address = other
	pool.Update([]brokerconn.Shard{shard})
	eventually(t, "moved", func() bool { return len(u.got()) == 5 && usable() })
	require.Equal(t, []string{"up5", "down5", "up5", "down5", "up5"}, u.got())
	stop()
	require.NoError(t, send(b))

	pool.Update(nil)
	eventually(t, "closed", func() bool { return len(u.got()) == 6 })
	require.True(t, mqerr.Is(send(b), mqerr.Unavailable))
	require.Positive(t, pool.Counters().Requests.Load())
}

// Up is told when Broker finds the shard, never before.
func TestUpMeansUsable(t *testing.T) {
	mem := broker(t)
	_, address, _ := serve(t, options(mem), "")
	found := make(chan error, 1)
	var pool *brokerconn.Pool
	pool = brokerconn.NewPool(poolOptions(brokerconn.Events{Up: func(s brokerapi.ShardID) {
		b, _, err := pool.Broker(s)
		if err != nil {
			found <- err
			return
		}
		b.Send(&brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{{ID: []byte("x")}}},
			func(_ *brokerapi.SendReply, err error) { found <- err })
	}}))
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	pool.Update([]brokerconn.Shard{{ID: 5, Name: "a", Address: address, HasMaster: true}})
	require.NoError(t, <-found)
}

func TestRefusedHandshakes(t *testing.T) {
	mem := broker(t)
	for name, test := range map[string]struct {
		change func(*server.Options)
		text   string
	}{
		"cluster": {func(o *server.Options) { o.ClusterID = "c2" }, `belongs to cluster "c1", a/1 to cluster "c2"`},
		"shard":   {func(o *server.Options) { o.Shard = 6 }, "is a/1 of shard 6, not of shard 5"},
		"links":   {func(o *server.Options) { o.LinksMax = 1 }, "has 1 links already"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(mem)
			test.change(&o)
			s, address, _ := serve(t, o, "")
			if name == "links" {
				first := brokerconn.Connect(poolOptions(brokerconn.Events{}), 5, "a", address)
				t.Cleanup(func() { _ = first.Close() })
				eventually(t, "connected", func() bool { return s.Links() == 1 })
			}
			c := brokerconn.Connect(poolOptions(brokerconn.Events{}), 5, "a", address)
			t.Cleanup(func() { _ = c.Close() })
			eventually(t, "refused", func() bool { return c.Err() != nil && strings.Contains(c.Err().Error(), test.text) })
			require.True(t, mqerr.Is(send(c), mqerr.Unavailable))
			require.Equal(t, name == "links", s.Refused() > 0)
		})
	}
}

// A server that drains answers what is under way and refuses the rest.
func TestDrain(t *testing.T) {
	var mu sync.Mutex
	var answers []func()
	mem := membroker.New(membroker.Options{
		Topics: map[brokerapi.TopicID]int{1: 4}, Groups: []brokerapi.GroupID{7}, Epoch: 3,
		Later: func(a func()) { mu.Lock(); answers = append(answers, a); mu.Unlock() },
	})
	s, address, _ := serve(t, options(mem), "")
	o := poolOptions(brokerconn.Events{})
	c := brokerconn.Connect(o, 5, "a", address)
	t.Cleanup(func() { _ = c.Close() })
	eventually(t, "connected", func() bool { return c.Err() == nil })

	under := make(chan error, 1)
	go func() { under <- send(c) }()
	eventually(t, "arrived", func() bool { mu.Lock(); defer mu.Unlock(); return len(answers) == 1 })
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s.Drain(ctx)
	}()
	eventually(t, "refused", func() bool {
		late := make(chan error, 1)
		go func() { late <- send(c) }()
		select {
		case err := <-late:
			require.True(t, mqerr.Is(err, mqerr.Draining), "error: %v", err)
			return true
		case <-time.After(10 * time.Millisecond): // it came before the word of the draining: answer it
			mu.Lock()
			more := answers[1:]
			answers = answers[:1]
			mu.Unlock()
			for _, a := range more {
				a()
			}
			return false
		}
	})
	select {
	case <-drained:
		t.Fatal("drained with a request under way")
	default:
	}
	answers[0]()
	require.NoError(t, <-under)
	<-drained
	require.Zero(t, s.Links())
	require.Zero(t, mem.Sessions())
}

// A drain that takes too long ends the links.
func TestDrainTimeout(t *testing.T) {
	release := make(chan func(), 1)
	mem := membroker.New(membroker.Options{
		Topics: map[brokerapi.TopicID]int{1: 4}, Epoch: 3, Later: func(a func()) { release <- a },
	})
	s, address, _ := serve(t, options(mem), "")
	c := brokerconn.Connect(poolOptions(brokerconn.Events{}), 5, "a", address)
	t.Cleanup(func() { _ = c.Close() })
	eventually(t, "connected", func() bool { return c.Err() == nil })
	under := make(chan error, 1)
	go func() { under <- send(c) }()
	answer := <-release
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	drained := make(chan struct{})
	go func() { s.Drain(ctx); close(drained) }()
	require.True(t, mqerr.Is(<-under, mqerr.UnknownOutcome))
	answer() // the session closes once the broker has answered
	<-drained
	require.Zero(t, mem.Sessions())
}

// A broker that fails tells its proxies.
func TestBrokerStops(t *testing.T) {
	mem := membroker.New(membroker.Options{Topics: map[brokerapi.TopicID]int{1: 4}, Epoch: 3})
	_, address, _ := serve(t, options(mem), "")
	var u ups
	o := poolOptions(u.events())
	o.BackoffMin, o.BackoffMax = time.Minute, time.Minute
	c := brokerconn.Connect(o, 5, "a", address)
	t.Cleanup(func() { _ = c.Close() })
	eventually(t, "connected", func() bool { return len(u.got()) == 1 })
	mem.Stop()
	eventually(t, "down", func() bool { return len(u.got()) == 2 })
	require.True(t, mqerr.Is(send(c), mqerr.Unavailable))
}

func TestLocal(t *testing.T) {
	mem := membroker.New(membroker.Options{Topics: map[brokerapi.TopicID]int{1: 4}, Groups: []brokerapi.GroupID{7}, Epoch: 3})
	var u ups
	ready := make(chan brokerapi.ShardID, 1)
	ev := u.events()
	ev.Ready = func(s brokerapi.ShardID, _ []brokerapi.Ready) { ready <- s }
	l, err := brokerconn.AttachLocal("proxy-1", mem, 5, 3, ev)
	require.NoError(t, err)
	_, _, err = l.Broker(6)
	require.True(t, mqerr.Is(err, mqerr.Unavailable))
	b, epoch, err := l.Broker(5)
	require.NoError(t, err)
	require.Equal(t, brokerapi.Epoch(3), epoch)
	b.Pop(&brokerapi.PopRequest{Topic: 1, Group: 7, Max: 1, Invisible: time.Minute, Arm: true}, func(r *brokerapi.PopReply, err error) {
		require.NoError(t, err)
		r.Release()
	})
	require.NoError(t, send(b))
	require.Equal(t, brokerapi.ShardID(5), <-ready)
	mem.Stop()
	_, _, err = l.Broker(5)
	require.True(t, mqerr.Is(err, mqerr.Unavailable))
	require.Equal(t, []string{"down5"}, u.got())
	require.NoError(t, l.Close())
}

// BenchmarkLink is a send of 1 KiB by 64 callers to a broker that only answers, over loopback.
func BenchmarkLink(b *testing.B) {
	_, address, _ := serve(b, options(sink{}), "")
	o := poolOptions(brokerconn.Events{})
	o.Link.Counters = &link.Counters{}
	c := brokerconn.Connect(o, 5, "a", address)
	b.Cleanup(func() { _ = c.Close() })
	eventually(b, "connected", func() bool { return c.Err() == nil })
	body := make([]byte, 1024)
	var wg sync.WaitGroup
	start := cpu()
	b.ReportAllocs()
	b.ResetTimer()
	for i := range 64 {
		wg.Go(func() {
			done := make(chan error, 1)
			for range b.N/64 + min(1, max(0, b.N%64-i)) {
				req := &brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{{Queue: 0, Type: brokerapi.Normal, ID: body[:32], Body: body}}}
				req.Deadline = time.Now().Add(3 * time.Second)
				c.Send(req, func(_ *brokerapi.SendReply, err error) { done <- err })
				if err := <-done; err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(cpu()-start)/float64(b.N)/1e3, "cpu-us/op")
	b.ReportMetric(float64(b.N)/float64(o.Link.Counters.PacketsOut.Load()), "requests/packet")
}

// cpu is the processor time of this process, in ns.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// sink answers every send.
type sink struct{ brokerapi.Broker }

func (s sink) Attach(string, brokerapi.Events) (brokerapi.Broker, error) { return s, nil }

func (sink) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	done(&brokerapi.SendReply{Results: make([]brokerapi.SendResult, len(req.Messages))}, nil)
}

func (sink) Close() error { return nil }
