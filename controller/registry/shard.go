package registry

import (
	"log/slog"
	"slices"

	"github.com/perigee-mq/perigee/controller/liveness"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func master(h *state.Shard) liveness.Replica {
	return liveness.Replica{Shard: h.ID, ID: h.Master}
}

// shardLocked follows a change of a shard. A new mastership has logged nothing yet as far as anybody
// knows, and counts as heard from: it was granted this moment.
func (r *Registry) shardLocked(now *state.Shard, progress bool) {
	h := r.shards[now.ID]
	if h == nil {
		h = newShard(now)
		r.shards[now.ID] = h
	}
	before := h.hard
	h.hard = now
	if progress {
		return
	}
	h.form = now
	for id := range h.heard {
		if now.Replica(id) == nil {
			delete(h.heard, id)
		}
	}
	if before.Epoch != now.Epoch {
		h.proposed = nil
		if t := h.transfer; t != nil && now.Master != 0 {
			h.transfer = nil
		}
	}
	if r.leading && now.Master == 0 {
		r.dueLocked()
	}
	if before == now || before.Epoch != now.Epoch || before.MasterInc != now.MasterInc {
		h.applied, h.caughtUp = now.Applied, false
		if r.leading && now.Master != 0 {
			r.live.Heard(master(now), r.o.Now())
			if h.heard[now.Master].inc != now.MasterInc {
				h.heard[now.Master] = heard{inc: now.MasterInc, at: r.o.Now()}
			}
		}
	}
	for id, s := range h.sessions {
		if err := fenced(now, id, s.inc, s.epoch, s.resigning || s.follows); err != nil {
			s.endLocked(err)
		}
	}
	r.viewLocked(h)
}

// shardGoneLocked forgets a shard that was deleted. That is rare: proxies get everything anew.
func (r *Registry) shardGoneLocked(id state.ShardID) {
	h := r.shards[id]
	if h == nil {
		return
	}
	for _, s := range h.sessions {
		s.endLocked(mqerr.New(mqerr.Fenced, "broker group %q was deleted", h.hard.Name))
	}
	delete(r.shards, id)
	delete(r.told, id)
	r.book.Forget(id)
	delete(r.proxies.items, shardKey(id))
	r.proxies.restart()
}

// liveLocked reports whether the shard has a master that was heard from.
func (r *Registry) liveLocked(h *shard) bool {
	return h.hard.Master != 0 && r.live.Alive(master(h.hard))
}

// knownLiveLocked reports whether the shard's master is live as far as this node knows: until a new leader
// has heard the brokers, and on one that follows, it is what was last said of this epoch.
func (r *Registry) knownLiveLocked(h *shard) bool {
	if r.leading && r.settled {
		return r.liveLocked(h) && h.caughtUp
	}
	told := r.told[h.hard.ID]
	return told.live && told.epoch == h.hard.Epoch
}

// viewLocked tells proxies how a shard is.
func (r *Registry) viewLocked(h *shard) {
	k := shardKey(h.hard.ID)
	v := ShardView{Shard: h.hard, Live: r.knownLiveLocked(h)}
	if before, ok := r.proxies.items[k].(ShardView); !ok || before != v {
		r.proxies.put(k, v)
	}
}

// Live reports whether the master of a shard is live, as proxies are told.
func (r *Registry) Live(id state.ShardID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[id]
	return h != nil && r.knownLiveLocked(h)
}

// Shards returns all shards by id.
func (r *Registry) Shards() []ShardView {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := Update{}
	for _, h := range r.shards {
		u.Shards = append(u.Shards, ShardView{Shard: h.hard, Live: r.knownLiveLocked(h)})
	}
	u.sort()
	return u.Shards
}

// Tick marks brokers that have become silent. Call it several times within the silence.
func (r *Registry) Tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading {
		return
	}
	silent := r.live.Expire(r.o.Now())
	for _, gone := range silent {
		h := r.shards[gone.Shard]
		if h == nil || h.hard.Master != gone.ID {
			continue
		}
		r.o.Log.Warn("broker not heard from: proxies prefer others until it is back; check that it runs and reaches this controller", slog.String("shard", h.hard.Name), slog.Uint64("replica", uint64(gone.ID)))
		h.caughtUp = false
		r.viewLocked(h)
	}
	settled := r.settled
	r.advanceLocked()
	if len(silent) > 0 || settled != r.settled {
		r.wakeLocked()
	}
}

// settleLocked lets proxies have their first snapshot when every master has reported, or has had the
// time to. What existed before this leadership is in it even if its broker is late: proxies had it.
func (r *Registry) settleLocked() {
	late := r.o.Now().After(r.settleBy)
	for _, h := range r.shards {
		if r.liveLocked(h) && !h.caughtUp && !late {
			return
		}
	}
	r.settled, r.known = true, true
	for _, h := range r.shards {
		r.viewLocked(h)
	}
	for k, v := range r.pending {
		if late && v <= r.settleUpTo {
			r.showLocked(k)
		}
	}
}

// Progress returns the commands that make durable how far the masters are.
func (r *Registry) Progress() []state.SetApplied {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []state.SetApplied
	for _, h := range r.shards {
		if x := h.hard; r.leading && x.Master != 0 && h.applied > x.Applied {
			out = append(out, state.SetApplied{Shard: x.ID, Epoch: x.Epoch, Replica: x.Master, Inc: x.MasterInc, Applied: h.applied})
		}
	}
	slices.SortFunc(out, func(a, b state.SetApplied) int { return compare(a.Shard, b.Shard) })
	return out
}
