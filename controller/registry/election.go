package registry

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/controller/election"
	"github.com/perigee-mq/perigee/controller/liveness"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Report is how far a replica says that it is. Zero values of Known fields mean that it did not say.
type Report struct {
	Known                    bool
	Written, Durable, Commit int64  // ends of its log, and the confirm offset that it knows, bytes
	FlushP99                 *int64 // microseconds
	DiskUsed                 *int32 // thousandths
	HTTP, Release            string
}

// heard is what was last heard of a replica in one incarnation.
type heard struct {
	Report
	inc    state.Incarnation
	at     time.Time
	closed bool // its stream has broken, or this node leads now and has none of it
	probed bool // it is being asked whether it is there
	gone   bool // and it had no answer
}

// transfer is an operator's wish for another master.
type transfer struct {
	to    state.ReplicaID // 0: anybody else
	epoch state.Epoch     // whose master is to go
}

// Election is a command that gives a shard its next master. It is taken by one caller at a time for each
// shard, who says what came of it to Elected.
type Election struct {
	state.Elect
	Reason election.Reason
}

// Registered notes that a replica has just begun an incarnation: it is alive.
func (r *Registry) Registered(id state.ShardID, replica state.ReplicaID, inc state.Incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[id]
	if h == nil || !r.leading {
		return
	}
	h.heard[replica] = heard{inc: inc, at: r.o.Now()}
	r.live.Heard(liveness.Replica{Shard: id, ID: replica}, r.o.Now())
}

// Due tells that it is worth to ask for elections before the usual time.
func (r *Registry) Due() <-chan struct{} { return r.due }

func (r *Registry) dueLocked() {
	select {
	case r.due <- struct{}{}:
	default:
	}
}

// groupLocked is a shard as it is judged.
func (r *Registry) groupLocked(h *shard) election.Group {
	g := election.Group{Shard: h.hard, Reports: map[state.ReplicaID]election.Report{}, Free: r.book.Free(h.hard.ID), Fast: r.o.FastFailover}
	for id, x := range h.heard {
		g.Reports[id] = election.Report{
			Inc: x.inc, Alive: r.live.Alive(liveness.Replica{Shard: h.hard.ID, ID: id}), Gone: x.gone, End: x.Written, Known: x.Known,
		}
	}
	if t := h.transfer; t != nil {
		g.Transfer, g.To = true, t.to
	}
	return g
}

// alarmAfter is how long a shard may have nobody to lead it before an operator is told: one that has just resigned is heard
// from again in a moment.
const alarmAfter = time.Second

// Elections returns the shards for which an election is to be taken.
func (r *Registry) Elections() (due []state.ShardID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading {
		return nil
	}
	now := r.o.Boot()
	for id, h := range r.shards {
		d := election.Decide(r.groupLocked(h), now)
		if d.Stuck && !h.stuck {
			h.since, h.alarmed = now, false
		}
		if d.Stuck && !h.alarmed && now-h.since >= alarmAfter && len(h.hard.Replicas) > 1 {
			h.alarmed = true
			r.o.Log.Error("broker group without a master: no replica that has every acknowledged message is heard from; start one of them, or choose with perigee cluster elect what to lose",
				slog.String("shard", h.hard.Name), slog.Any("sync_state_set", h.hard.Set), slog.Any("elr", h.hard.ELR))
		}
		h.stuck = d.Stuck
		if d.Elect != nil || h.proposed != nil {
			due = append(due, id)
		}
	}
	return due
}

// Election takes the election that a shard needs now; false if it needs none. From then on the master is
// granted no lease until it is known what came of it: one whose outcome is not known is taken again.
func (r *Registry) Election(id state.ShardID) (Election, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[id]
	if h == nil || !r.leading {
		return Election{}, false
	}
	if h.proposed == nil {
		d := election.Decide(r.groupLocked(h), r.o.Boot())
		if d.Elect == nil {
			return Election{}, false
		}
		h.proposed = &Election{*d.Elect, d.Reason}
	}
	return *h.proposed, true
}

// Elected says what came of an election.
func (r *Registry) Elected(e Election, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.elections[e.Reason]++
	}
	h := r.shards[e.Shard]
	if h == nil || h.proposed == nil || h.proposed.Epoch != e.Epoch {
		return
	}
	switch mqerr.KindOf(err) {
	case mqerr.Fenced, mqerr.Invalid, mqerr.NotFound: // judged: it will never be carried out
		h.proposed = nil
	}
}

// Counted notes an election that an operator ordered.
func (r *Registry) Counted(why election.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.elections[why]++
}

// Transfer asks for another master of a shard than that of the epoch, and waits until there is one. While it waits
// the master gets no lease any more and is told to resign.
func (r *Registry) Transfer(ctx context.Context, id state.ShardID, epoch state.Epoch, to state.ReplicaID) (*state.Shard, error) {
	t := &transfer{to: to, epoch: epoch}
	r.mu.Lock()
	if h := r.shards[id]; h != nil && h.hard.Epoch == epoch {
		h.transfer = t
		r.dueLocked()
		r.wakeLocked()
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if h := r.shards[id]; h != nil && h.transfer == t {
			h.transfer = nil
			r.wakeLocked()
		}
	}()
	var now *state.Shard
	err := r.await(ctx, func() (bool, error) {
		h := r.shards[id]
		if h == nil || !r.leading {
			return false, r.goneLocked()
		}
		now = h.hard
		return now.Epoch != epoch && now.Master != 0, nil
	})
	return now, err
}

// AwaitFree waits until no lease of the shard can be held any more.
func (r *Registry) AwaitFree(ctx context.Context, id state.ShardID) error {
	for {
		r.mu.Lock()
		left := r.book.Free(id) - r.o.Boot()
		r.mu.Unlock()
		if left <= 0 {
			return nil
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// Heir tells whether replicas that may be the master are heard from, the master itself apart; with to,
// whether that one is. fit is false too if this node does not lead.
func (r *Registry) Heir(id state.ShardID, to state.ReplicaID) (fit bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[id]
	if h == nil || !r.leading {
		return false
	}
	for _, x := range append(append([]state.ReplicaID{}, h.hard.Set...), h.hard.ELR...) {
		fit = fit || x != h.hard.Master && (to == 0 || to == x) && r.presentLocked(h, x)
	}
	return fit
}

// Present reports whether a replica was heard from in its present incarnation.
func (r *Registry) Present(id state.ShardID, replica state.ReplicaID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[id]
	return h != nil && r.leading && r.presentLocked(h, replica)
}

func (r *Registry) presentLocked(h *shard, id state.ReplicaID) bool {
	x, now := h.heard[id], h.hard.Replica(id)
	return now != nil && x.inc == now.Incarnation && !x.gone && r.live.Alive(liveness.Replica{Shard: h.hard.ID, ID: id})
}
