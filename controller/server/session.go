package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

type brokerStream = grpc.BidiStreamingServer[controllerv1.BrokerHeartbeat, controllerv1.BrokerUpdate]

// BrokerSession takes the heartbeats of a broker and sends it definitions, until either side ends it
// or the broker's incarnation is over.
func (s *Server) BrokerSession(stream brokerStream) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	if err := s.leading(ctx); err != nil {
		return err
	}
	beats := s.receive(ctx, cancel, stream)
	var first *controllerv1.BrokerHeartbeat
	select {
	case m := <-beats:
		if err := s.hello(m.GetHello(), false); err != nil {
			return err
		}
		first = m
	case <-ctx.Done():
		return ended(ctx)
	case <-time.After(firstBeat):
		return mqerr.New(mqerr.Invalid, "a session begins with a heartbeat")
	}
	session, err := s.o.Registry.Open(beatOf(first))
	if err != nil {
		return s.fenced(stream, err)
	}
	defer session.Close()
	s.wg.Go(func() { s.listen(ctx, cancel, session, first, beats) })
	return s.fenced(stream, s.feed(ctx, stream, session))
}

// receive reads the stream until it ends; the gRPC library ends it when the handler returns.
func (s *Server) receive(ctx context.Context, cancel context.CancelCauseFunc, stream brokerStream) <-chan *controllerv1.BrokerHeartbeat {
	beats := make(chan *controllerv1.BrokerHeartbeat)
	s.wg.Go(func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				cancel(err)
				return
			}
			select {
			case beats <- m:
			case <-ctx.Done():
				return
			}
		}
	})
	return beats
}

// listen hands the heartbeats to the session. What ends the session reaches the handler through Next.
func (s *Server) listen(ctx context.Context, cancel context.CancelCauseFunc, session *registry.Session, first *controllerv1.BrokerHeartbeat, beats <-chan *controllerv1.BrokerHeartbeat) {
	number, b := first.GetNumber(), beatOf(first)
	resigned := state.Epoch(0) // the last epoch that it gave up on this stream
	asks := make(chan uint64, 1)
	s.wg.Go(func() { s.grant(ctx, session, asks) })
	for {
		if number != 0 && b.Epoch != 0 && !b.Resigning {
			select { // only the latest counts
			case <-asks:
			default:
			}
			asks <- number
		}
		if b.Resigning && b.Epoch != resigned {
			resigned = b.Epoch
			s.resign(b)
		}
		select {
		case m := <-beats:
			b, number = beatOf(m), m.GetNumber()
		case <-ctx.Done():
			return
		}
		if err := session.Beat(b); err != nil {
			cancel(err)
			return
		}
	}
}

// grant gives the broker leases: for each one that it asks for this node makes sure that it leads.
func (s *Server) grant(ctx context.Context, session *registry.Session, asks <-chan uint64) {
	for {
		select {
		case number := <-asks:
			if s.verify.sure(ctx, &s.wg) == nil {
				session.Grant(number)
			}
		case <-ctx.Done():
			return
		}
	}
}

// resign ends the mastership of a broker that is leaving.
func (s *Server) resign(b registry.Beat) {
	if b.Epoch == 0 {
		return
	}
	_, err := s.o.Node.Apply(state.Resign{Shard: b.Shard, Epoch: b.Epoch, Replica: b.Replica, Inc: b.Inc, Leaves: b.Leaving})
	if err != nil && !mqerr.Is(err, mqerr.Fenced) {
		s.o.Log.Warn("the farewell of a broker was not stored: it counts as away when it has been silent for a while; nothing has to be done", slog.Uint64("shard", uint64(b.Shard)), slog.Any("error", err))
	}
}

// feed sends definitions until the session ends.
func (s *Server) feed(ctx context.Context, stream brokerStream, session *registry.Session) error {
	hello := s.ownHello()
	for {
		u, err := session.Next(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return ended(ctx)
			}
			return err
		}
		m := &controllerv1.BrokerUpdate{Hello: hello, HandOver: u.HandOver}
		if !u.Bare {
			m.Definitions = definitionsProto(u)
		}
		if u.Shard != nil {
			m.Shard = shardProto(u.Shard, false)
		}
		if g := u.Lease; g != nil {
			m.Lease = &controllerv1.Lease{Number: g.Number, Epoch: uint64(g.Epoch), LengthMs: g.Length.Milliseconds()}
		}
		if err := stream.Send(m); err != nil {
			return err
		}
		hello = nil
	}
}

// ended tells why a session is over: a broker that closed its side is no error.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// fenced tells the broker before the stream ends with the reason.
func (s *Server) fenced(stream brokerStream, err error) error {
	if !mqerr.Is(err, mqerr.Fenced) {
		return err
	}
	return errors.Join(stream.Send(&controllerv1.BrokerUpdate{Fenced: true}), err)
}

func beatOf(m *controllerv1.BrokerHeartbeat) registry.Beat {
	var r registry.Report
	if x := m.GetReport(); x != nil {
		r = registry.Report{Known: true, Written: x.GetWrittenEnd(), Durable: x.GetDurableEnd(), Commit: x.GetConfirm(), FlushP99: x.FlushP99Us, DiskUsed: x.DiskUsedPermille, HTTP: x.GetHttpAddress(), Release: x.GetRelease()}
	}
	return registry.Beat{
		Shard: state.ShardID(m.GetShard()), Replica: state.ReplicaID(m.GetReplicaId()), Inc: state.Incarnation(m.GetIncarnation()),
		Epoch: state.Epoch(m.GetEpoch()), Applied: state.Version(m.GetAppliedVersion()), Resigning: m.GetResigning(), Leaving: m.GetLeaving(), Follows: m.GetFollows(), Report: r,
	}
}
