package ctl

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Definer logs definitions; engine.Engine is one.
type Definer interface {
	Define(ctx context.Context, defs *engine.Definitions) error
}

// definer hands what the controller defines to the Definer of the moment, in a goroutine of its own, so that nothing
// else waits for it: a master gets the whole set first, then what changes. One that follows gets nothing, for
// definitions reach it in its log.
type definer struct {
	shard uint32
	log   *slog.Logger
	wake  chan struct{} // holds a token when there is something to do
	done  chan struct{} // holds a token when applied has changed

	mu      sync.Mutex // guards the rest
	whole   *controllerv1.Definitions
	topics  map[uint32]*controllerv1.Topic
	groups  map[uint32]*controllerv1.Group
	changes []*controllerv1.Definitions // since whole was handed over, in their order
	to      Definer                     // nil: this broker does not lead
	first   func()                      // called when to has its first set; nil afterwards
	term    int                         // counts the changes of to
	full    bool                        // to has the whole set, but for changes
	applied uint64                      // version that to has logged
}

func newDefiner(shard uint32, log *slog.Logger) *definer {
	return &definer{shard: shard, log: log, wake: make(chan struct{}, 1), done: make(chan struct{}, 1)}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lead says who logs definitions from now on, nil: nobody.
func (d *definer) lead(to Definer, first func()) {
	d.mu.Lock()
	d.to, d.first, d.full, d.applied, d.changes = to, first, false, 0, nil
	d.term++
	d.mu.Unlock()
	ring(d.wake)
	ring(d.done)
}

// take takes what the controller sends. The first one that is taken has to be full.
func (d *definer) take(u *controllerv1.Definitions) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case u.GetFull():
		d.topics, d.groups = map[uint32]*controllerv1.Topic{}, map[uint32]*controllerv1.Group{}
		d.full, d.changes = false, nil
	case d.whole == nil:
		return mqerr.New(mqerr.Invalid, "the controller sent changes of definitions before the whole")
	case d.full:
		d.changes = append(d.changes, u)
	}
	d.whole = u
	for _, t := range u.GetTopics() {
		d.topics[t.GetId()] = t
	}
	for _, g := range u.GetGroups() {
		d.groups[g.GetId()] = g
	}
	for _, id := range u.GetDeletedTopics() {
		delete(d.topics, id)
	}
	for _, id := range u.GetDeletedGroups() {
		delete(d.groups, id)
	}
	ring(d.wake)
	return nil
}

// version is what the Definer of the moment has logged, 0 for nothing.
func (d *definer) version() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.applied
}

// next is what is to be handed over now, and to whom; nil if there is nothing.
func (d *definer) next() (u *controllerv1.Definitions, to Definer, term int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.to == nil || d.whole == nil:
		return nil, nil, 0
	case !d.full:
		u = &controllerv1.Definitions{Full: true, Version: d.whole.GetVersion()}
		for t := range maps.Values(d.topics) {
			u.Topics = append(u.Topics, t)
		}
		for g := range maps.Values(d.groups) {
			u.Groups = append(u.Groups, g)
		}
		d.full, d.changes = true, nil
	case len(d.changes) > 0:
		u, d.changes = d.changes[0], d.changes[1:]
	default:
		return nil, nil, 0
	}
	return u, d.to, d.term
}

// logged notes what came of a hand-over.
func (d *definer) logged(u *controllerv1.Definitions, term int, err error) (again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case term != d.term:
		return false
	case err != nil:
		d.full = false // from the beginning
		return true
	}
	d.applied = u.GetVersion()
	if d.first != nil {
		d.first()
		d.first = nil
	}
	ring(d.done)
	return false
}

// run hands definitions over until ctx ends.
func (d *definer) run(ctx context.Context) {
	pause, told, since := retryFirst, "", time.Time{}
	for {
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
		for ctx.Err() == nil {
			u, to, term := d.next()
			if u == nil {
				break
			}
			err := to.Define(ctx, definitions(u, d.shard))
			if !d.logged(u, term, err) || ctx.Err() != nil {
				if err == nil {
					pause, told, since = retryFirst, "", time.Time{}
				}
				continue
			}
			if since.IsZero() {
				since = time.Now()
			}
			if text := err.Error(); text != told && time.Since(since) >= tellAfter {
				told = text
				d.log.LogAttrs(ctx, slog.LevelWarn, "topics and groups as the controller defines them can't be logged yet: proxies see the older ones; it is tried again", slog.String("error", text))
			}
			if sleep(ctx, pause) != nil {
				return
			}
			pause = min(2*pause, retryMax)
		}
	}
}
