package registry

import (
	"context"

	"github.com/perigee-mq/perigee/controller/state"
)

// Watcher is one proxy as it follows the routes. It is used by one goroutine.
type Watcher struct {
	r       *Registry
	viewer  Viewer
	started bool
	cursor  uint64
	version state.Version
}

// Watch begins a watch.
func (r *Registry) Watch(v Viewer) *Watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &Watcher{r: r, viewer: v, version: v.SeenVersion}
	r.watchers[w] = struct{}{}
	return w
}

// Next waits for something that the proxy does not know: first everything, then what changed, and
// everything again if it was too slow.
func (w *Watcher) Next(ctx context.Context) (Update, error) {
	var u Update
	err := w.r.await(ctx, func() (bool, error) {
		if wait, err := w.waitingLocked(); wait || err != nil {
			return false, err
		}
		version := w.r.shownLocked()
		news := w.cursor != w.r.proxies.head || w.version < version && len(w.r.pending) == 0
		if w.started && !news {
			return false, nil
		}
		u = w.updateLocked(version)
		return true, nil
	})
	return u, err
}

func (w *Watcher) updateLocked(version state.Version) Update {
	f := w.r.proxies
	w.version = max(w.version, version)
	u := Update{Version: w.version, Index: w.r.index}
	if !w.started || !f.since(w.cursor, u.add) {
		u = Update{Version: w.version, Index: w.r.index, Full: true}
		f.all(u.add)
	}
	u.sort()
	w.started, w.cursor = true, f.head
	return u
}

// shownLocked is the version up to which proxies may see everything.
func (r *Registry) shownLocked() state.Version {
	if !r.leading {
		return r.shown
	}
	version := r.version
	for _, v := range r.pending {
		version = min(version, v-1)
	}
	return version
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	delete(w.r.watchers, w)
}
