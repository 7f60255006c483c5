package registry

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/controller/liveness"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Beat is what a broker says of itself.
type Beat struct {
	Shard     state.ShardID
	Replica   state.ReplicaID
	Inc       state.Incarnation
	Epoch     state.Epoch // that it leads, 0 if none
	Applied   state.Version
	Resigning bool
	Leaving   bool // with Resigning: its process stops
	Follows   bool // it goes on as a follower when its epoch is over
	Report    Report
}

// Grant is a lease for the master.
type Grant struct {
	Number uint64 // of the heartbeat that asked for it
	Epoch  state.Epoch
	Length time.Duration
}

// fenced refuses a broker whose incarnation is over, or its mastership unless it bears that.
func fenced(h *state.Shard, id state.ReplicaID, inc state.Incarnation, epoch state.Epoch, bears bool) error {
	replica := h.Replica(id)
	switch {
	case replica == nil || replica.Incarnation != inc:
		return mqerr.New(mqerr.Fenced, "broker group %q: incarnation %d of replica %d is over", h.Name, inc, id)
	case epoch > h.Epoch:
		return mqerr.New(mqerr.Unavailable, "broker group %q: replica %d leads epoch %d, this controller knows only %d", h.Name, id, epoch, h.Epoch)
	case epoch != 0 && !bears && (h.Master != id || h.Epoch != epoch):
		return mqerr.New(mqerr.Fenced, "broker group %q: epoch %d of replica %d is over", h.Name, epoch, id)
	}
	return nil
}

// Session is one broker process as it follows the definitions. Beat and Next may be called at the
// same time by two goroutines.
type Session struct {
	r       *Registry
	replica liveness.Replica
	inc     state.Incarnation

	// The registry's lock guards these.
	epoch     state.Epoch
	resigning bool
	follows   bool
	lease     *Grant        // to be sent
	opened    state.Version // definitions that existed when it began, or was heard again
	over      error

	started bool // the rest belongs to Next
	cursor  uint64
	sent    state.Version
	shown   *state.Shard // that the broker knows
	leave   bool         // it knows that it is to hand over

	kick chan struct{} // holds one; wakes Next of this session only
}

// Open begins a session with a broker's first words. An older session of the same replica ends.
func (r *Registry) Open(b Beat) (*Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leading {
		return nil, r.goneLocked()
	}
	h := r.shards[b.Shard]
	if h == nil {
		return nil, mqerr.New(mqerr.Fenced, "broker group %d does not exist", b.Shard)
	}
	if err := fenced(h.hard, b.Replica, b.Inc, b.Epoch, b.Resigning || b.Follows); err != nil {
		return nil, err
	}
	if old := h.sessions[b.Replica]; old != nil {
		old.endLocked(mqerr.New(mqerr.Cancelled, "the broker has a newer session"))
	}
	s := &Session{r: r, replica: liveness.Replica{Shard: b.Shard, ID: b.Replica}, inc: b.Inc, opened: r.version, kick: make(chan struct{}, 1)}
	h.sessions[b.Replica] = s
	r.sessions++
	s.beatLocked(h, b)
	return s, nil
}

// Beat takes what the broker says. An error ends the session.
func (s *Session) Beat(b Beat) error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	h := s.r.shards[s.replica.Shard]
	switch {
	case s.over != nil:
		return s.over
	case !s.r.leading || h == nil:
		return s.r.goneLocked()
	case b.Shard != s.replica.Shard || b.Replica != s.replica.ID || b.Inc != s.inc:
		s.endLocked(mqerr.New(mqerr.Invalid, "a session can't change its broker"))
	default:
		if err := fenced(h.hard, b.Replica, b.Inc, b.Epoch, b.Resigning || b.Follows); err != nil {
			s.endLocked(err)
		}
	}
	if s.over != nil {
		s.r.wakeLocked()
		return s.over
	}
	s.beatLocked(h, b)
	return nil
}

func (s *Session) beatLocked(h *shard, b Beat) {
	r := s.r
	s.epoch, s.resigning, s.follows = b.Epoch, b.Resigning, b.Follows
	h.heard[b.Replica] = heard{Report: b.Report, inc: b.Inc, at: r.o.Now()}
	changed := false
	if b.Resigning {
		changed = r.live.Left(s.replica)
	} else if changed = r.live.Heard(s.replica, r.o.Now()); changed {
		s.opened = r.version // nobody waited for it while it was silent
	}
	if h.hard.Master == b.Replica {
		if b.Applied != h.applied {
			h.applied, changed = b.Applied, true
		}
		if !h.caughtUp && b.Applied >= s.opened && !b.Resigning {
			h.caughtUp, changed = true, true
			r.o.Log.Info("broker group is live", slog.String("shard", h.hard.Name), slog.Uint64("epoch", uint64(h.hard.Epoch)))
		}
	}
	if !changed {
		return
	}
	r.viewLocked(h)
	r.advanceLocked()
	r.dueLocked()
	r.wakeLocked()
}

// Grant gives the broker a lease as the answer to its heartbeat of this number, if it is the master, nothing
// that could replace it is under way, and nobody wants that. The caller has made sure since that heartbeat came
// that this node leads.
func (s *Session) Grant(number uint64) {
	r := s.r
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.shards[s.replica.Shard]
	if s.over != nil || !r.leading || h == nil || s.resigning || h.proposed != nil || h.transfer != nil {
		return
	}
	if x := h.hard; x.Master != s.replica.ID || x.MasterInc != s.inc || x.Epoch != s.epoch {
		return
	}
	s.lease = &Grant{number, s.epoch, r.book.Grant(s.replica.Shard, r.o.Boot())}
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Session) endLocked(err error) {
	if s.over == nil {
		s.over = err
	}
	if h := s.r.shards[s.replica.Shard]; h != nil && h.sessions[s.replica.ID] == s {
		delete(h.sessions, s.replica.ID)
	}
}

// Next waits for something that the broker does not know: definitions, first all, then what changed; its shard,
// as it is now; a lease. An error of kind Fenced says that the broker must register again.
func (s *Session) Next(ctx context.Context) (Update, error) {
	var u Update
	err := s.r.awaitKick(ctx, s.kick, func() (bool, error) {
		h := s.r.shards[s.replica.Shard]
		switch {
		case s.over != nil:
			return false, s.over
		case !s.r.leading || h == nil:
			return false, s.r.goneLocked()
		}
		handOver := h.transfer != nil && h.hard.Master == s.replica.ID
		if !s.newsLocked() && s.shown == h.form && s.lease == nil && s.leave == handOver {
			return false, nil
		}
		u = s.updateLocked()
		u.Lease, s.lease = s.lease, nil
		if s.shown != h.form || s.leave != handOver {
			u.Shard, u.HandOver = h.form, handOver
			s.shown, s.leave = h.form, handOver
		}
		return true, nil
	})
	return u, err
}

func (s *Session) newsLocked() bool {
	return !s.started || s.sent != s.r.version || s.cursor != s.r.brokers.head
}

func (s *Session) updateLocked() Update {
	f := s.r.brokers
	u := Update{Version: s.r.version}
	if !s.newsLocked() {
		u.Bare = true
		return u
	}
	take := func(k key, v any) {
		if t, ok := v.(*state.Topic); !ok || t.On(s.replica.Shard) > 0 {
			u.add(k, v)
		}
	}
	if !s.started || !f.since(s.cursor, take) {
		u = Update{Version: s.r.version, Full: true}
		f.all(take)
	}
	u.sort()
	s.started, s.cursor, s.sent = true, f.head, s.r.version
	return u
}

// Close ends the session. The broker counts as heard from until it has been silent.
func (s *Session) Close() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.sessions--
	if h := s.r.shards[s.replica.Shard]; h != nil && h.sessions[s.replica.ID] == s && !s.resigning {
		x := h.heard[s.replica.ID]
		x.closed = true
		h.heard[s.replica.ID] = x
		s.r.dueLocked()
	}
	s.endLocked(mqerr.New(mqerr.Cancelled, "the session has ended"))
}
