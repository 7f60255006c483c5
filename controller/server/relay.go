package server

import (
	"context"
	"log/slog"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
)

// relayPause is how long a node that follows waits before it looks for the leader again.
const relayPause = 50 * time.Millisecond

// Relay follows the routes of the leader while this node does not lead, until ctx ends: what proxies may
// see, and which masters are live, only the leader knows.
func (s *Server) Relay(ctx context.Context) {
	for pause(ctx, relayPause) {
		if leads, err := s.o.Registry.Leads(); leads || err != nil {
			continue
		}
		if addr := s.leaderAddr(); addr != "" {
			err := s.relayFrom(ctx, addr)
			s.o.Log.Debug("the leader's routes are not followed", slog.String("leader", addr), slog.Any("error", err))
		}
	}
}

func (s *Server) relayFrom(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	near, done := context.WithTimeout(ctx, reachWait)
	conn, err := s.peers.conn(near, addr)
	done()
	if err != nil {
		return err
	}
	stream, err := controllerv1.NewControllerServiceClient(conn).Watch(ctx, &controllerv1.WatchRequest{Hello: s.ownHello(), Controller: s.o.ID})
	if err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		s.o.Registry.Relay(updateOf(m))
	}
}

// updateOf is what the leader shows, as far as it is not in the state.
func updateOf(m *controllerv1.WatchUpdate) registry.Update {
	d := m.GetDefinitions()
	u := registry.Update{Full: d.GetFull(), Version: state.Version(d.GetVersion())}
	for _, t := range d.GetTopics() {
		u.Topics = append(u.Topics, topicOf(t))
	}
	for _, g := range d.GetGroups() {
		u.Groups = append(u.Groups, groupOf(g))
	}
	for _, id := range d.GetDeletedTopics() {
		u.DeletedTopics = append(u.DeletedTopics, state.TopicID(id))
	}
	for _, id := range d.GetDeletedGroups() {
		u.DeletedGroups = append(u.DeletedGroups, state.GroupID(id))
	}
	for _, h := range m.GetShards() {
		u.Shards = append(u.Shards, registry.ShardView{Shard: &state.Shard{ID: state.ShardID(h.GetId()), Epoch: state.Epoch(h.GetEpoch())}, Live: h.GetLive()})
	}
	return u
}

// topicOf is the reverse of topicProto.
func topicOf(p *controllerv1.Topic) *state.Topic {
	t := &state.Topic{
		ID: state.TopicID(p.GetId()), Name: p.GetName(), Flush: state.Flush(p.GetFlush()),
		Version: state.Version(p.GetVersion()), Created: state.Version(p.GetCreatedVersion()), CreatedMS: p.GetCreatedMs(), Layout: state.Version(p.GetLayoutVersion()),
	}
	t.Type, _ = topicTypeOf(p.GetType())
	if l := p.GetLimits(); l != nil {
		t.Limits = state.Limits{
			MaxDelayMS: l.GetMaxDelayMs(), CheckAfterMS: l.GetCheckAfterMs(), CheckIntervalMS: l.GetCheckIntervalMs(), CheckLimit: l.GetCheckLimit(),
			DuplicatesMS: l.GetDuplicateWindowMs(), LiteExpiryMS: l.GetLiteExpiryMs(),
		}
	}
	if g := p.GetGrowing(); g != nil {
		t.Growing = &state.Growing{Queues: int(g.GetQueues()), Began: state.Version(g.GetBeganVersion()), UntilMS: g.GetUntilMs()}
	}
	for _, x := range p.GetPlacements() {
		t.Placements = append(t.Placements, state.Placement{Shard: state.ShardID(x.GetShard()), Queues: int(x.GetQueues())})
	}
	return t
}

// groupOf is the reverse of groupProto.
func groupOf(p *controllerv1.Group) *state.Group {
	g := &state.Group{
		ID: state.GroupID(p.GetId()), Name: p.GetName(), Ordered: p.GetOrdered(), MaxAttempts: int(p.GetMaxAttempts()), From: state.From(p.GetFrom()), FromMS: p.GetFromMs(),
		LiteTopic: p.GetLiteTopic(), BackoffMS: p.GetBackoffMs(), Version: state.Version(p.GetVersion()), Created: state.Version(p.GetCreatedVersion()), CreatedMS: p.GetCreatedMs(),
		InFlight: state.InFlight{MaxInFlight: p.GetMaxInFlight(), MaxInFlightClient: p.GetMaxInFlightClient()},
	}
	if x := p.GetExponential(); x != nil {
		g.Exponential = &state.Growth{InitialMS: x.GetInitialMs(), MaxMS: x.GetMaxMs(), Multiplier: int(x.GetMultiplierMilli())}
	}
	return g
}
