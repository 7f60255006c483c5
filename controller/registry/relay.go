package registry

import (
	"context"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Relay shows proxies of this node what the leader shows its own. Of shards, only epoch and Live count:
// the rest is in the state. A leader takes no notice.
func (r *Registry) Relay(u Update) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leading {
		return
	}
	said := map[key]bool{}
	show := func(k key, v any) {
		said[k] = true
		if version := versionOf(v); versionOf(r.proxies.items[k]) != version {
			r.proxies.put(k, v)
		}
		if r.pending[k] <= versionOf(v) {
			delete(r.pending, k)
		}
	}
	for _, t := range u.Topics {
		show(topicKey(t.ID), t)
	}
	for _, g := range u.Groups {
		show(groupKey(g.ID), g)
	}
	for _, id := range u.DeletedTopics {
		r.proxies.remove(topicKey(id))
	}
	for _, id := range u.DeletedGroups {
		r.proxies.remove(groupKey(id))
	}
	if u.Full {
		for k := range r.proxies.items {
			if !said[k] && (k.kind == kindTopic || k.kind == kindGroup) {
				r.proxies.remove(k)
			}
		}
	}
	for _, v := range u.Shards {
		r.told[v.ID] = verdict{v.Epoch, v.Live}
		if h := r.shards[v.ID]; h != nil {
			r.viewLocked(h)
		}
	}
	r.shown, r.known = u.Version, true
	r.wakeLocked()
}

// AwaitKnown waits until proxies get answers from this node.
func (r *Registry) AwaitKnown(ctx context.Context) error {
	return r.await(ctx, func() (bool, error) {
		if r.closed {
			return false, r.goneLocked()
		}
		return r.known, nil
	})
}

// Leads reports whether this node leads, with a complete state. Draining: it has been closed.
func (r *Registry) Leads() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false, r.goneLocked()
	}
	return r.leading, nil
}

// Viewer is a proxy that watches.
type Viewer struct {
	Address, HTTP, Release string
	// SeenVersion and SeenIndex are what it has seen elsewhere: it gets nothing that is older.
	SeenVersion, SeenIndex state.Version
	// Controller is set for a controller that follows: only a leader answers it.
	Controller bool
}

// Viewers returns the proxies that watch.
func (r *Registry) Viewers() []Viewer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Viewer
	for w := range r.watchers {
		if !w.viewer.Controller {
			out = append(out, w.viewer)
		}
	}
	return out
}

// waitingLocked says why a watch gets nothing yet; an error ends it.
func (w *Watcher) waitingLocked() (bool, error) {
	r := w.r
	switch {
	case r.closed:
		return true, r.goneLocked()
	case w.viewer.Controller && !r.leading:
		return true, r.goneLocked()
	case !r.known || w.viewer.Controller && !r.settled:
		return true, nil
	}
	return !w.started && (r.shownLocked() < w.viewer.SeenVersion || r.index < w.viewer.SeenIndex), nil
}

// Behind says why a watcher has had no first update.
func (w *Watcher) Behind() error {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if !w.r.known {
		return mqerr.New(mqerr.Unavailable, "this controller has not caught up with the others since its start")
	}
	return mqerr.New(mqerr.Unavailable, "this controller is behind what was seen elsewhere: it shows version %d of %d and has applied entry %d of %d",
		w.r.shownLocked(), w.viewer.SeenVersion, w.r.index, w.viewer.SeenIndex)
}

// versionOf is the version of a definition, 0 of anything else.
func versionOf(v any) state.Version {
	switch v := v.(type) {
	case *state.Topic:
		return v.Version
	case *state.Group:
		return v.Version
	}
	return 0
}
