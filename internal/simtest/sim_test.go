package simtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
	"github.com/perigee-mq/perigee/internal/crashtest/load"
	"github.com/perigee-mq/perigee/internal/nodes"
	"github.com/perigee-mq/perigee/internal/simtest/simnet"
)

// plan says which cluster a seed runs, and how long.
type plan struct {
	controllers, replicas, proxies int
	fast                           bool // fast_failover
	faults                         int
	first                          int           // the number of the cell of the first fault, -1: by the seed
	pause                          time.Duration // of clients
}

// sim is one run of one seed.
type sim struct {
	seed uint64
	plan plan
	dir  string     // of the controllers
	rng  *rand.Rand // of the schedule
	net  *simnet.Network

	all                           []*process
	controllers, brokers, proxies []*process
	ctlAddrs                      []string
	disks                         map[*process]*disk
	names                         map[string]string // of broker groups by address
	reg                           *registers
	probe                         *probe
	observer                      grpc.ClientConnInterface
	last                          atomic.Pointer[seen]
	runs, besides                 sync.WaitGroup // of processes, and of calls of the schedule

	turn  chan struct{} // holds a token while somebody has the turn
	waits *armed        // for a step; of whoever has the turn
	hits  map[cell]int

	mu     sync.Mutex // guards the rest
	trace  []string
	faults []string
	ops    []history.Op // at the end
}

func newSim(seed uint64, p plan, dir string) *sim {
	s := &sim{
		seed: seed, plan: p, dir: dir, rng: rand.New(rand.NewPCG(seed, 0)), net: simnet.New(seed), reg: newRegisters(), probe: newProbe(),
		disks: map[*process]*disk{}, names: map[string]string{}, turn: make(chan struct{}, 1), hits: map[cell]int{},
	}
	for i := 1; i <= p.controllers; i++ {
		s.addController(i, p.controllers)
	}
	for i := 1; i <= p.replicas; i++ {
		s.addBroker("a", i, i)
	}
	for i := 1; i <= p.proxies; i++ {
		s.addProxy(i)
	}
	return s
}

// stale is how old lists may be while controllers come and go.
const stale = 10 * time.Second

// noProposal is refused always.
var noProposal = quorum.Proposal{Master: quorum.Member{}}

// pause waits.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// run is the whole life of a cluster.
func (s *sim) run() (r report) {
	outside := s.net.Host("10.0.9.1").Boot()
	conn, err := nodes.New(s.ctlAddrs, grpc.WithContextDialer(outside.Dial))
	if err != nil {
		s.fail("%v", err)
		return r
	}
	s.observer = conn
	s.take()
	s.startAll(s.all)
	s.give()
	at := load.Service{Names: s.names, Groups: []string{"a"}, Replicated: s.plan.replicas > 1, Dial: outside.Dial, Pause: s.plan.pause, Stale: stale}
	for _, p := range s.proxies {
		at.Proxies = append(at.Proxies, p.ip+proxyPort)
	}
	l, err := load.New(at, s.seed)
	if err != nil {
		s.fail("%v", err)
		return r
	}
	s.live(l, outside)
	l.Close()
	s.besides.Wait()
	_ = conn.Close()
	outside.Kill()
	for _, p := range s.all {
		p.kill(false)
	}
	s.runs.Wait()
	s.sameLogs()
	bad, n := s.reg.check()
	for _, f := range bad {
		s.fail("%s", f)
	}
	ops := l.Recorder().Snapshot()
	s.ops = ops
	for _, v := range history.Check(ops, l.Rules(len(s.faults) == 0)) {
		s.fail("%s", v)
	}
	return report{Faults: s.faults, Ops: len(ops), Regs: n, Worst: s.probe.worst, Took: boot()}
}

// live is the time in which clients are there.
func (s *sim) live(l *load.Load, outside *simnet.Stack) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := l.Define(ctx); err != nil {
		s.fail("defining: %v", err)
		return
	}
	if err := s.defineProbe(ctx); err != nil {
		s.fail("defining: %v", err)
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.observe(ctx, s.observer) })
	wg.Go(func() { s.probe.run(ctx, s, outside.Dial) })
	busy, calm := context.WithCancel(ctx)
	loaded := make(chan struct{})
	go func() { defer close(loaded); l.Run(busy) }()
	cell := s.seed * uint64(s.plan.faults)
	if s.plan.first >= 0 {
		cell = uint64(s.plan.first)
	}
	for i := range s.plan.faults {
		s.round(i, cellAt(cell+uint64(i)))
		if s.rng.IntN(2) == 0 {
			s.small()
		}
	}
	time.Sleep(2 * time.Second)
	calm()
	<-loaded
	if err := l.Drain(ctx); err != nil {
		s.fail("A4: %v", err)
	}
	time.Sleep(stale) // from here on lists must show how it is
	l.List(ctx)
	if !s.await(wholeTime, func(n *seen) bool { return n.whole(len(s.brokers)) }) {
		s.fail("not all replicas are in sync at the end: %v", s.last.Load())
	}
	stop()
	wg.Wait()
	s.settle()
}

// defineProbe makes the topic of the probe.
func (s *sim) defineProbe(ctx context.Context) (err error) {
	for range 100 {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err = controllerv1.NewControllerServiceClient(s.observer).PutTopic(call, &controllerv1.PutTopicRequest{
			Name: probeTopic, Queues: 4, Type: controllerv1.TopicType_TOPIC_TYPE_NORMAL,
		})
		cancel()
		if err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("topic %s: %w", probeTopic, err)
}
