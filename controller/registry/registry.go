// Package registry follows the controller's state and the brokers' sessions, and says who may see
// what: brokers get every definition that concerns them at once, proxies see a definition when the
// brokers that serve it have logged it, and whoever changed one can wait for that.
//
// All of it is soft state of the leading controller. A definition that proxies have seen stays as
// they saw it until a newer one is confirmed or it is deleted; a broker that is silent is not waited
// for, since it gets everything before it is live again. After a start the first snapshot for proxies
// waits until the brokers have reported, so that nothing vanishes from a route for a moment.
//
// A controller that follows shows proxies what the leader shows them (Relay), and goes on with that when
// there is no leader. So does a new leader, until it knows better: no change of the lead takes anything
// out of a route.
//
// A Registry has no goroutine; its owner calls Tick.
package registry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/controller/election"
	"github.com/perigee-mq/perigee/controller/liveness"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/boottime"
	"github.com/perigee-mq/perigee/internal/lease"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Options configures New. The zero value of a field means its default.
type Options struct {
	// Silence is how long a broker may be silent before it is marked. Default 3 s; brokers speak
	// every second.
	Silence time.Duration
	// Ring is how many changes a reader may be behind before it gets everything again. Default 4096.
	Ring int
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Boot is the boot-time clock that leases run on. Default: that of this machine.
	Boot func() time.Duration
	// Lease are the terms of leases. Default: those of internal/lease.
	Lease lease.Terms
	// FastFailover replaces a master whose stream has broken and that answers no probe without waiting for the end
	// of its lease.
	FastFailover bool
	// Log receives this package's records. Default: discard.
	Log *slog.Logger
}

// Registry is safe for concurrent use.
type Registry struct {
	o Options

	mu      sync.Mutex    // guards everything below
	wake    chan struct{} // closed and replaced whenever somebody may have waited for what changed
	leading bool
	closed  bool
	live    *liveness.Table
	book    *lease.Book[state.ShardID]
	version state.Version // of the definitions
	brokers *feed         // all definitions
	proxies *feed         // confirmed definitions, shards, keys
	pending map[key]state.Version
	shards  map[state.ShardID]*shard

	settled    bool      // of a leader: the brokers have reported, or had the time to
	settleBy   time.Time // at the latest then
	settleUpTo state.Version
	known      bool                      // proxies may have what is in the feed
	index      state.Version             // Raft index of the last command
	shown      state.Version             // of a follower: version up to which the leader shows everything
	told       map[state.ShardID]verdict // what was last known for certain of the masters
	watchers   map[*Watcher]struct{}
	sessions   int
	elections  map[election.Reason]uint64 // that this node carried out

	due chan struct{} // holds one
}

// verdict is whether the master of an epoch was live.
type verdict struct {
	epoch state.Epoch
	live  bool
}

// shard is a shard with its soft state.
type shard struct {
	hard     *state.Shard
	applied  state.Version // definitions that the current master has logged
	caughtUp bool          // it has logged all that existed when its session began
	sessions map[state.ReplicaID]*Session
	form     *state.Shard // as it was when more than the progress changed last

	heard    map[state.ReplicaID]heard
	proposed *Election // its outcome is not known
	transfer *transfer
	stuck    bool          // it needs a master, and nobody is there
	since    time.Duration // that began, on the boot-time clock
	alarmed  bool          // and was told
}

func newShard(hard *state.Shard) *shard {
	return &shard{hard: hard, form: hard, sessions: map[state.ReplicaID]*Session{}, heard: map[state.ReplicaID]heard{}}
}

// New returns a registry of an empty state.
func New(o Options) *Registry {
	if o.Silence == 0 {
		o.Silence = 3 * time.Second
	}
	if o.Ring == 0 {
		o.Ring = 4096
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Boot == nil {
		o.Boot = boottime.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{o: o, wake: make(chan struct{}), proxies: newFeed(o.Ring), told: map[state.ShardID]verdict{}, watchers: map[*Watcher]struct{}{}, elections: map[election.Reason]uint64{}, due: make(chan struct{}, 1)}
	r.resetLocked()
	return r
}

func (r *Registry) resetLocked() {
	r.live, r.book = liveness.New(r.o.Silence), lease.NewBook[state.ShardID](r.o.Lease, r.o.Boot())
	r.brokers = newFeed(r.o.Ring)
	r.pending, r.shards = map[key]state.Version{}, map[state.ShardID]*shard{}
}

func (r *Registry) wakeLocked() {
	close(r.wake)
	r.wake = make(chan struct{})
}

// Restore replaces everything by a state. Brokers get it as a whole; proxies keep what they were shown until
// the leader says otherwise.
func (r *Registry) Restore(s *state.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	head := r.brokers.head
	r.resetLocked()
	r.brokers.head = head
	r.brokers.restart()
	for _, h := range s.Shards() {
		r.shardLocked(h, false)
	}
	for _, t := range s.Topics() {
		r.definedLocked(topicKey(t.ID), t, t.Version)
	}
	for _, g := range s.Groups() {
		r.definedLocked(groupKey(g.ID), g, g.Version)
	}
	r.proxies.put(key{kind: kindKeys}, s.Keys())
	r.version, r.index = s.Definitions(), s.Version()
	r.advanceLocked()
	r.wakeLocked()
}

// Applied follows one command of the state, which may have changed nothing.
func (r *Registry) Applied(index state.Version, events []state.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index = index
	for _, e := range events {
		switch e := e.(type) {
		case state.TopicPut:
			r.definedLocked(topicKey(e.Topic.ID), e.Topic, e.Topic.Version)
		case state.GroupPut:
			r.definedLocked(groupKey(e.Group.ID), e.Group, e.Group.Version)
		case state.TopicDeleted:
			r.deletedLocked(topicKey(e.Topic.ID), e.Version)
		case state.GroupDeleted:
			r.deletedLocked(groupKey(e.Group.ID), e.Version)
		case state.ShardChanged:
			r.shardLocked(e.Shard, e.Progress)
		case state.ShardDeleted:
			r.shardGoneLocked(e.Shard.ID)
		case state.KeysChanged:
			r.proxies.put(key{kind: kindKeys}, e.Keys)
		}
	}
	r.advanceLocked()
	r.wakeLocked()
}

func (r *Registry) definedLocked(k key, v any, version state.Version) {
	r.brokers.put(k, v)
	if versionOf(r.proxies.items[k]) < version { // the leader may have been quicker
		r.pending[k] = version
	}
	r.version = max(r.version, version)
}

func (r *Registry) deletedLocked(k key, version state.Version) {
	r.brokers.remove(k)
	r.proxies.remove(k)
	delete(r.pending, k)
	r.version = max(r.version, version)
}

// Start begins a leadership: masters count as heard from until they have had time to report.
func (r *Registry) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.o.Now()
	r.leading, r.live, r.book = true, liveness.New(r.o.Silence), lease.NewBook[state.ShardID](r.o.Lease, r.o.Boot())
	r.settled, r.settleBy, r.settleUpTo = false, now.Add(r.o.Silence), r.version
	for k := range r.proxies.items { // what the last leader deleted, and could not say any more
		if _, there := r.brokers.items[k]; !there && (k.kind == kindTopic || k.kind == kindGroup) {
			r.proxies.remove(k)
		}
	}
	for _, h := range r.shards {
		h.applied, h.caughtUp = h.hard.Applied, false
		h.heard, h.proposed, h.transfer, h.stuck, h.alarmed = map[state.ReplicaID]heard{}, nil, nil, false, false
		if h.hard.Master != 0 {
			r.live.Heard(master(h.hard), now)
			h.heard[h.hard.Master] = heard{inc: h.hard.MasterInc, at: now, closed: true}
		}
		r.viewLocked(h)
	}
	r.advanceLocked()
	r.dueLocked()
	r.wakeLocked()
}

// Stop ends a leadership: sessions and waits end with NotLeader, or Draining after Close. Watches of proxies
// go on with what is known.
func (r *Registry) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leading && r.settled {
		r.shown = r.shownLocked()
		for id, h := range r.shards {
			r.told[id] = verdict{h.hard.Epoch, r.liveLocked(h) && h.caughtUp}
		}
	}
	r.leading = false
	for _, h := range r.shards {
		clear(h.sessions)
	}
	r.wakeLocked()
}

// Close is the last Stop.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Stop()
}

func (r *Registry) goneLocked() error {
	if r.closed {
		return mqerr.New(mqerr.Draining, "this controller is stopping")
	}
	return mqerr.New(mqerr.NotLeader, "this controller is not the leader")
}

// await waits until done says so or fails. done is called with the lock held.
func (r *Registry) await(ctx context.Context, done func() (bool, error)) error {
	return r.awaitKick(ctx, nil, done)
}

// awaitKick is await for one who may be woken alone.
func (r *Registry) awaitKick(ctx context.Context, kick <-chan struct{}, done func() (bool, error)) error {
	for {
		r.mu.Lock()
		ok, err := done()
		wake := r.wake
		r.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-wake:
		case <-kick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
