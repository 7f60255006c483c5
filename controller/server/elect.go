package server

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
)

const (
	// scan is how often it is looked who needs a master, when nothing has happened.
	scan = 250 * time.Millisecond
	// electionsMax is how many shards get a master at a time.
	electionsMax = 16
	// probeTimeout is how long a master whose stream has broken has to accept a connection.
	probeTimeout = 300 * time.Millisecond
)

// Elections gives shards masters while this node leads, until ctx ends.
func (s *Server) Elections(ctx context.Context) {
	t := time.NewTicker(scan)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.o.Registry.Due():
		case <-ctx.Done():
			return
		}
		for _, p := range s.o.Registry.Probes() {
			s.wg.Go(func() { s.probe(ctx, p) })
		}
		var g errgroup.Group
		g.SetLimit(electionsMax)
		for _, id := range s.o.Registry.Elections() {
			g.Go(func() error {
				s.elect(ctx, id)
				return nil // it is tried again with the next scan
			})
		}
		_ = g.Wait()
	}
}

// elect gives a shard a master if it needs one and somebody may be it.
func (s *Server) elect(ctx context.Context, id state.ShardID) {
	done, err := s.electing(ctx, id)
	if err != nil {
		return
	}
	defer done()
	e, ok := s.o.Registry.Election(id)
	if !ok {
		return
	}
	r, err := s.o.Node.Apply(e.Elect)
	s.o.Registry.Elected(e, err)
	if err != nil {
		s.o.Log.LogAttrs(ctx, slog.LevelDebug, "not elected", slog.Uint64("shard", uint64(id)), slog.Any("error", err))
		return
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "master elected", slog.String("shard", r.Shard.Name), slog.Uint64("replica", uint64(e.Winner)),
		slog.Uint64("epoch", uint64(r.Shard.Epoch)), slog.String("reason", string(e.Reason)))
}

// electing waits until nobody else elects a master for a shard: one at a time. It is held for a round of consensus, so
// who waits may give up.
func (s *Server) electing(ctx context.Context, id state.ShardID) (done func(), err error) {
	c, _ := s.locks.LoadOrStore(id, make(chan struct{}, 1))
	turn := c.(chan struct{})
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// probe looks whether a master whose stream has broken still accepts connections.
func (s *Server) probe(ctx context.Context, p registry.Probe) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := s.o.Dial(ctx, p.Address)
	if err == nil {
		_ = conn.Close()
		s.o.Registry.Probed(p, true)
		return
	}
	s.o.Log.Warn("master gone: its stream has broken and it accepts no connection", slog.Uint64("shard", uint64(p.Shard)), slog.Uint64("replica", uint64(p.Replica)), slog.Any("error", err))
	s.o.Registry.Probed(p, false)
}
