package ctl

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Session keeps a registered broker in touch with the controller.
type Session struct {
	Client  *Client
	Shard   uint32
	Replica uint32
	Term    Term
	Release string // of this program
	Definer Definer
	// Defined is called once, when the first whole set of definitions is logged. May be nil.
	Defined func()
	// Changed is told how the broker group is: at the start of every stream, and at once when that changes. It must
	// not wait. May be nil.
	Changed func(ShardView)
	// Report says how far this replica is; nil: the controller is told nothing.
	Report func() *controllerv1.ReplicaReport
	// Follows says that this broker goes on as a follower when its epoch is over: the controller does not end it
	// for that.
	Follows bool
	// Lease is what the controller grants to the master. Its Lead says which epoch that is, from Term.Epoch on.
	Lease Lease

	heard bool // the controller has sent something on the last stream; read when that is over
}

// Run keeps the session until ctx ends, which resigns, or the controller says that this incarnation
// is over, which is an error of kind Fenced. Nothing else that the controller does ends a broker that
// serves: it tries again.
func (s *Session) Run(ctx context.Context) error {
	s.Lease.Lead(s.Term.Epoch)
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
			s.Client.log.LogAttrs(ctx, slog.LevelWarn, "no session with the controller: this broker goes on serving its epoch and tries again",
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
	applied := make(chan uint64, 16)
	end := ending{over: make(chan struct{})}
	go func() {
		defer close(end.over)
		end.err = s.receive(free, st, applied)
	}()
	if err := s.hello(st); err != nil {
		return end.why(ctx, cancel, err)
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	version := uint64(0)
	for {
		resigning := false
		select {
		case <-end.over:
			return end.err
		case version = <-applied:
		case <-tick.C:
		case <-ctx.Done():
			resigning = true
		}
		if err := s.beat(st, version, resigning); err != nil {
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

func (s *Session) beat(st stream, version uint64, resigning bool) error {
	m := s.heartbeat()
	m.AppliedVersion, m.Resigning = version, resigning
	return st.Send(m)
}

// heartbeat is to be sent at once: the lease that answers it counts from now.
func (s *Session) heartbeat() *controllerv1.BrokerHeartbeat {
	m := &controllerv1.BrokerHeartbeat{Shard: s.Shard, ReplicaId: s.Replica, Incarnation: s.Term.Incarnation, Follows: s.Follows}
	if s.Report != nil {
		m.Report = s.Report()
	}
	m.Number, m.Epoch = s.Lease.ask()
	return m
}

// receive logs what the controller sends and hands the logged versions to applied.
func (s *Session) receive(ctx context.Context, st stream, applied chan<- uint64) error {
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
		if h := up.GetShard(); h != nil && s.Changed != nil {
			s.Changed(shardOf(h, up.GetHandOver()))
		}
		if g := up.GetLease(); g != nil {
			s.Lease.granted(g)
		}
		d := up.GetDefinitions()
		if d == nil {
			continue
		}
		if err := s.Definer.Define(ctx, definitions(d, s.Shard)); err != nil {
			return err
		}
		if s.Defined != nil {
			s.Defined()
			s.Defined = nil
		}
		select {
		case applied <- d.GetVersion():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
