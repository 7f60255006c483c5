package ctl

import (
	"context"
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
}

// Run keeps the session until ctx ends, which resigns, or the controller says that this incarnation
// is over, which is an error of kind Fenced.
func (s *Session) Run(ctx context.Context) error {
	pause := retryFirst
	for {
		began := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if mqerr.Is(err, mqerr.Fenced) || !again(err) {
			return err
		}
		s.Client.log.LogAttrs(ctx, slog.LevelWarn, "lost the controller: this broker goes on serving its epoch and tries again",
			slog.Uint64("epoch", s.Term.Epoch), slog.String("error", err.Error()))
		if time.Since(began) > 10*time.Second {
			pause = retryFirst
		}
		if sleep(ctx, pause) != nil {
			return nil
		}
		pause = min(2*pause, retryMax)
	}
}

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
	ended := make(chan error, 1)
	go func() { ended <- s.receive(free, st, applied) }()
	finish := func(err error) error {
		cancel()
		if e := <-ended; e != nil && err == nil {
			err = e
		}
		return err
	}
	if err := s.hello(st); err != nil {
		return finish(rpc.FromStatus(err))
	}
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	version := uint64(0)
	for {
		resigning := false
		select {
		case err := <-ended:
			return err
		case version = <-applied:
		case <-tick.C:
		case <-ctx.Done():
			resigning = true
		}
		if err := s.beat(st, version, resigning); err != nil {
			return finish(rpc.FromStatus(err))
		}
		if resigning {
			_ = st.CloseSend()
			return goodbye(ended, finish)
		}
	}
}

// goodbyeTimeout is how long a broker that stops waits for the controller to take note.
const goodbyeTimeout = time.Second

// goodbye waits for the end of a stream that was closed; how it ends matters to nobody any more.
func goodbye(ended <-chan error, finish func(error) error) error {
	timer := time.NewTimer(goodbyeTimeout)
	defer timer.Stop()
	select {
	case err := <-ended:
		_ = err
	case <-timer.C:
		_ = finish(nil)
	}
	return nil
}

// hello is the first heartbeat of a stream.
func (s *Session) hello(st stream) error {
	return st.Send(&controllerv1.BrokerHeartbeat{
		Hello: &controllerv1.Hello{Version: ProtocolVersion, Release: s.Release, ClusterId: s.Term.ClusterID},
		Shard: s.Shard, ReplicaId: s.Replica, Incarnation: s.Term.Incarnation, Epoch: s.Term.Epoch,
	})
}

func (s *Session) beat(st stream, version uint64, resigning bool) error {
	return st.Send(&controllerv1.BrokerHeartbeat{
		Shard: s.Shard, ReplicaId: s.Replica, Incarnation: s.Term.Incarnation, Epoch: s.Term.Epoch, AppliedVersion: version, Resigning: resigning,
	})
}

// receive logs what the controller sends and hands the logged versions to applied.
func (s *Session) receive(ctx context.Context, st stream, applied chan<- uint64) error {
	for {
		up, err := st.Recv()
		if err != nil {
			return rpc.FromStatus(err)
		}
		if up.GetFenced() {
			return mqerr.New(mqerr.Fenced, "the controller has given this broker's place to a later start of it: this process must not serve")
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
