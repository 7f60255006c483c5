package registry

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// advanceLocked shows proxies what has become confirmed, and lets them begin.
func (r *Registry) advanceLocked() {
	if !r.leading {
		return
	}
	for k, version := range r.pending {
		if len(r.lackingLocked(r.serversLocked(r.brokers.items[k]), version, true)) == 0 {
			r.showLocked(k)
		}
	}
	if !r.settled {
		r.settleLocked()
	}
}

func (r *Registry) showLocked(k key) {
	r.proxies.put(k, r.brokers.items[k])
	delete(r.pending, k)
}

// serversLocked returns the shards that serve a definition: a topic is where its placements are, a
// group everywhere.
func (r *Registry) serversLocked(v any) []*shard {
	var out []*shard
	if t, ok := v.(*state.Topic); ok {
		for _, p := range t.Placements {
			if h := r.shards[p.Shard]; h != nil {
				out = append(out, h)
			}
		}
		return out
	}
	for _, h := range r.shards {
		out = append(out, h)
	}
	return out
}

// lackingLocked returns the names of the shards that have not logged a version; with onlyLive, of
// those that are heard from.
func (r *Registry) lackingLocked(shards []*shard, version state.Version, onlyLive bool) []string {
	var names []string
	for _, h := range shards {
		if h.applied < version && (!onlyLive || r.liveLocked(h)) {
			names = append(names, h.hard.Name)
		}
	}
	slices.Sort(names)
	return names
}

// AwaitTopic waits until proxies see the topic in this version or a later one. With everywhere, it
// also waits for those of its shards that are not heard from.
func (r *Registry) AwaitTopic(ctx context.Context, t *state.Topic, version state.Version, everywhere bool) error {
	return r.confirmed(ctx, "topic", t.Name, func() ([]string, bool, error) {
		shown, ok := r.proxies.items[topicKey(t.ID)].(*state.Topic)
		visible := ok && shown.Version >= version
		if _, exists := r.brokers.items[topicKey(t.ID)]; !exists {
			return nil, false, mqerr.New(mqerr.TopicNotFound, "topic %q was deleted meanwhile", t.Name)
		}
		var lacking []string
		if everywhere || !visible {
			lacking = r.lackingLocked(r.serversLocked(t), version, !everywhere)
		}
		return lacking, visible && len(lacking) == 0, nil
	})
}

// AwaitGroup waits until proxies see the group in this version or a later one.
func (r *Registry) AwaitGroup(ctx context.Context, g *state.Group, version state.Version) error {
	return r.confirmed(ctx, "group", g.Name, func() ([]string, bool, error) {
		if _, exists := r.brokers.items[groupKey(g.ID)]; !exists {
			return nil, false, mqerr.New(mqerr.GroupNotFound, "group %q was deleted meanwhile", g.Name)
		}
		shown, ok := r.proxies.items[groupKey(g.ID)].(*state.Group)
		return r.lackingLocked(r.serversLocked(g), version, true), ok && shown.Version >= version, nil
	})
}

// AwaitGone waits until every broker that is heard from has logged the end of a topic or a group.
func (r *Registry) AwaitGone(ctx context.Context, e state.Event) error {
	what, name, version, servers := "", "", state.Version(0), any(nil)
	switch e := e.(type) {
	case state.TopicDeleted:
		what, name, version, servers = "topic", e.Topic.Name, e.Version, e.Topic
	case state.GroupDeleted:
		what, name, version, servers = "group", e.Group.Name, e.Version, e.Group
	}
	return r.confirmed(ctx, what, name, func() ([]string, bool, error) {
		lacking := r.lackingLocked(r.serversLocked(servers), version, true)
		return lacking, len(lacking) == 0, nil
	})
}

// confirmed waits for a change that is decided already: running out of time does not undo it.
func (r *Registry) confirmed(ctx context.Context, what, name string, check func() (lacking []string, done bool, err error)) error {
	var lacking []string
	err := r.await(ctx, func() (done bool, err error) {
		if !r.leading {
			return false, mqerr.New(mqerr.UnknownOutcome, "%s %q: the change is stored, but this controller stopped before its brokers confirmed it: ask again", what, name)
		}
		lacking, done, err = check()
		return done, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return mqerr.New(mqerr.Unavailable, "%s %q: the change is stored, but not yet confirmed by broker group %s, which gets it as soon as it is back", what, name, strings.Join(lacking, ", "))
	}
	return err
}
