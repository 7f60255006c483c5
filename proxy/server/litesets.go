package server

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// liteSets remembers what the lite consumers of this proxy subscribe to, so that a broker which comes back,
// or a new master, need not wait for the clients to say it again, which they do every 30 s. It is a cache.
type liteSets struct {
	mu    sync.Mutex
	sets  map[liteUser]*liteSet
	names int // of all sets
}

// liteUser is a client's use of a group.
type liteUser struct {
	client string
	topic  brokerapi.TopicID
	group  brokerapi.GroupID
}

type liteSet struct {
	names   map[string]struct{}
	version int64
	heard   time.Time
}

const (
	liteForget   = 3 * time.Minute // as brokers do
	liteNamesMax = 2_000_000       // of all clients; a client beyond it is not remembered
)

// remember takes a change that brokers have accepted.
func (l *liteSets) remember(req *brokerapi.SyncLiteRequest, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sets == nil {
		l.sets = map[liteUser]*liteSet{}
	}
	u := liteUser{req.Client, req.Topic, req.Group}
	set := l.sets[u]
	if set == nil {
		if req.Action != brokerapi.LiteCompleteAdd && req.Action != brokerapi.LitePartialAdd {
			return
		}
		set = &liteSet{names: map[string]struct{}{}}
		l.sets[u] = set
	}
	if req.Version != 0 && req.Version < set.version {
		return
	}
	set.version, set.heard = max(set.version, req.Version), now
	before := len(set.names)
	if req.Action == brokerapi.LiteCompleteAdd || req.Action == brokerapi.LiteCompleteRemove {
		clear(set.names)
	}
	for _, name := range req.Names {
		if req.Action == brokerapi.LitePartialRemove {
			delete(set.names, name)
		} else {
			set.names[name] = struct{}{}
		}
	}
	if l.names += len(set.names) - before; l.names > liteNamesMax || len(set.names) == 0 {
		l.forgetLocked(u)
	}
}

func (l *liteSets) forgetLocked(u liteUser) {
	l.names -= len(l.sets[u].names)
	delete(l.sets, u)
}

// drop forgets a client that said goodbye.
func (l *liteSets) drop(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for u := range l.sets {
		if u.client == client {
			l.forgetLocked(u)
		}
	}
}

// gone forgets one lite topic of a client.
func (l *liteSets) gone(g *brokerapi.LiteGone) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := liteUser{g.Client, g.Topic, g.Group}
	if set := l.sets[u]; set != nil {
		if _, is := set.names[g.Name]; is {
			delete(set.names, g.Name)
			l.names--
		}
	}
}

// all lists the sets of clients that were heard lately, as requests.
func (l *liteSets) all(now time.Time) []*brokerapi.SyncLiteRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*brokerapi.SyncLiteRequest
	for u, set := range l.sets {
		if now.Sub(set.heard) > liteForget {
			l.forgetLocked(u)
			continue
		}
		out = append(out, &brokerapi.SyncLiteRequest{
			Topic: u.topic, Group: u.group, Client: u.client, Action: brokerapi.LiteCompleteAdd, Version: set.version,
			Names: slices.Sorted(maps.Keys(set.names)),
		})
	}
	return out
}

// ShardUp tells a broker that can be asked now, or again, what the lite consumers of this proxy subscribe to.
// It waits for the broker's answers.
func (s *Server) ShardUp(ctx context.Context, shard brokerapi.ShardID) {
	for _, req := range s.lites.all(s.o.Now()) {
		topic := s.o.Routes.Load().TopicByID(req.Topic)
		if topic == nil {
			continue
		}
		for _, p := range liteParts(topic, req) {
			if p.shard != shard {
				continue
			}
			if err := s.syncOnce(ctx, shard, &p.req); err != nil {
				s.o.Log.LogAttrs(ctx, slog.LevelDebug, "lite subscriptions not repeated, clients will", slog.Uint64("shard", uint64(shard)), slog.Any("error", err))
				return
			}
		}
	}
}

func (s *Server) syncOnce(ctx context.Context, shard brokerapi.ShardID, req *brokerapi.SyncLiteRequest) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Limits.BrokerTimeout)
	defer cancel()
	return s.syncShard(ctx, shard, req)
}
