package ctl

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Session keeps a registered broker in touch with the controller. The fields are set before Run.
type Session struct {
	Client  *Client
	Shard   uint32
	Replica uint32
	Term    Term
	Release string // of this program
	// Changed is told how the broker group is: at the start of every stream, and at once when that changes. It must
	// not wait. May be nil.
	Changed func(ShardView)
	// Report says how far this replica is; nil: the controller is told nothing.
	Report func() *controllerv1.ReplicaReport
	// Follows says that this broker goes on as a follower when its epoch is over: the controller does not end it
	// for that.
	Follows bool
	// Lease is what the controller grants to the master.
	Lease Lease

	defs     *definer
	wake     chan struct{} // holds a token when a heartbeat is to go out now
	resigned atomic.Uint64 // epoch of which the controller is to be told that it is over, 0 if none
	leaving  atomic.Bool   // the process stops

	heard bool // the controller has sent something on the last stream; read when that is over
}

// NewSession returns a session that does not run yet.
func NewSession(c *Client, shard, replica uint32, t Term) *Session {
	return &Session{Client: c, Shard: shard, Replica: replica, Term: t, defs: newDefiner(shard, c.log), wake: make(chan struct{}, 1)}
}

// Lead says that this broker leads an epoch: heartbeats say so, and the Definer gets the definitions, first the whole
// set; first is called when that is logged, and may be nil.
func (s *Session) Lead(epoch uint64, to Definer, first func()) {
	s.Lease.Lead(epoch)
	s.defs.lead(to, first)
	ring(s.wake)
}

// Rest says that this broker leads no more: nothing is given to the Definer any more. A call that it has been given
// may be on its way yet.
func (s *Session) Rest() {
	s.defs.lead(nil, nil)
	s.Lease.Lead(0)
	ring(s.wake)
}

// Resign gives an epoch up that this broker leads: the controller is told until it shows the broker group without this
// master, and may elect another one at once. leaving says that the process stops, so that nobody waits for it.
func (s *Session) Resign(epoch uint64, leaving bool) {
	s.leaving.Store(leaving)
	s.resigned.Store(epoch)
	ring(s.wake)
}

// seen ends a resignation that the controller knows of.
func (s *Session) seen(g *ShardView) {
	e := s.resigned.Load()
	if e != 0 && (uint64(g.View.Epoch) > e || g.View.Master.Replica == 0) && s.resigned.CompareAndSwap(e, 0) {
		ring(s.wake)
	}
}

// Run keeps the session until ctx ends, which resigns, or the controller says that this incarnation
// is over, which is an error of kind Fenced. Nothing else that the controller does ends a broker that
// serves: it tries again.
func (s *Session) Run(ctx context.Context) error {
	defining, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { s.defs.run(defining) })
	defer work.Wait()
	defer stop()
	pause, told := retryFirst, ""
	var away time.Time // since when there is no session
	for {
		began := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if mqerr.Is(err, mqerr.Fenced) {
			return err
		}
		if time.Since(began) > settled {
			pause, told = retryFirst, ""
		}
		if s.heard || away.IsZero() {
			s.heard, away = false, time.Now()
		}
		// A change of the lead is nobody's concern.
		if text := err.Error(); text != told && time.Since(away) >= tellAfter {
			told = text
			s.Client.log.LogAttrs(ctx, slog.LevelWarn, "no session with the controller: this broker goes on as it is and tries again",
				slog.Uint64("epoch", s.Lease.Epoch()), slog.String("error", text))
		}
		if sleep(ctx, pause) != nil {
			return nil
		}
		pause = min(2*pause, retryMax)
	}
}

// settled is how long a session lasts that counts as a good one.
const settled = 10 * time.Second

type stream = grpc.BidiStreamingClient[controllerv1.BrokerHeartbeat, controllerv1.BrokerUpdate]

// once runs one stream until it ends.
func (s *Session) once(ctx context.Context) error {
	// The stream outlives ctx for the time of the resignation.
	free, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	st, err := s.Client.rpc.BrokerSession(free)
	if err != nil {
		return rpc.FromStatus(err)
	}
	end := ending{over: make(chan struct{})}
	go func() {
		defer close(end.over)
		end.err = s.receive(st)
	}()
	if err := s.hello(st); err != nil {
		return end.why(ctx, cancel, err)
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		resigning := false
		select {
		case <-end.over:
			return end.err
		case <-s.defs.done:
		case <-s.wake:
		case <-tick.C:
		case <-ctx.Done():
			resigning = true
		}
		if err := s.beat(st, resigning); err != nil {
			return end.why(ctx, cancel, err)
		}
		if resigning {
			_ = st.CloseSend()
			end.goodbye(cancel)
			return nil
		}
	}
}

// ending is the end of the goroutine that receives: err says why when over is closed.
type ending struct {
	over chan struct{}
	err  error
}

// why returns the reason for the end of a stream on which sending has failed with err. gRPC says io.EOF
// then, and the reason to who receives.
func (e *ending) why(ctx context.Context, cancel context.CancelFunc, err error) error {
	if errors.Is(err, io.EOF) {
		select {
		case <-e.over:
			return e.err
		case <-ctx.Done():
		}
	}
	cancel()
	<-e.over
	return rpc.FromStatus(err)
}

// goodbyeTimeout is how long a broker that stops waits for the controller to take note.
const goodbyeTimeout = time.Second

// goodbye waits for the end of a stream that was closed; how it ends matters to nobody any more.
func (e *ending) goodbye(cancel context.CancelFunc) {
	timer := time.NewTimer(goodbyeTimeout)
	defer timer.Stop()
	select {
	case <-e.over:
	case <-timer.C:
		cancel()
		<-e.over
	}
}

// hello is the first heartbeat of a stream.
func (s *Session) hello(st stream) error {
	m := s.heartbeat()
	m.Hello = &controllerv1.Hello{Version: ProtocolVersion, Release: s.Release, ClusterId: s.Term.ClusterID}
	return st.Send(m)
}

func (s *Session) beat(st stream, resigning bool) error {
	m := s.heartbeat()
	m.Resigning = m.Resigning || resigning
	return st.Send(m)
}

// heartbeat is to be sent at once: the lease that answers it counts from now.
func (s *Session) heartbeat() *controllerv1.BrokerHeartbeat {
	m := &controllerv1.BrokerHeartbeat{Shard: s.Shard, ReplicaId: s.Replica, Incarnation: s.Term.Incarnation, Follows: s.Follows}
	if s.Report != nil {
		m.Report = s.Report()
	}
	m.AppliedVersion = s.defs.version() // before the epoch: that of an epoch before is never said of this one
	m.Number, m.Epoch = s.Lease.ask()
	if e := s.resigned.Load(); e != 0 {
		m.Epoch, m.AppliedVersion, m.Resigning, m.Leaving = e, 0, true, s.leaving.Load()
	}
	return m
}

// receive takes what the controller sends.
func (s *Session) receive(st stream) error {
	for {
		up, err := st.Recv()
		if errors.Is(err, io.EOF) {
			return mqerr.New(mqerr.Unavailable, "the controller has ended the session")
		}
		if err != nil {
			return rpc.FromStatus(err)
		}
		if up.GetFenced() {
			return mqerr.New(mqerr.Fenced, "the controller has given this broker's place to a later start of it: this process must not serve")
		}
		s.heard = true
		if h := up.GetShard(); h != nil {
			g := shardOf(h, up.GetHandOver())
			s.seen(&g)
			if s.Changed != nil {
				s.Changed(g)
			}
		}
		if g := up.GetLease(); g != nil {
			s.Lease.granted(g)
		}
		if d := up.GetDefinitions(); d != nil {
			if err := s.defs.take(d); err != nil {
				return err
			}
		}
	}
}
