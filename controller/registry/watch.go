package registry

import (
	"context"

	"github.com/perigee-mq/perigee/controller/state"
)

// Watcher is one proxy as it follows the routes. It is used by one goroutine.
type Watcher struct {
	r       *Registry
	started bool
	cursor  uint64
	version state.Version
}

// Watch begins a watch.
func (r *Registry) Watch() *Watcher {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers++
	return &Watcher{r: r}
}

// Next waits for something that the proxy does not know: first everything, then what changed, and
// everything again if it was too slow.
func (w *Watcher) Next(ctx context.Context) (Update, error) {
	var u Update
	err := w.r.await(ctx, func() (bool, error) {
		if !w.r.leading {
			return false, w.r.goneLocked()
		}
		version := w.r.shownLocked()
		news := w.cursor != w.r.proxies.head || w.version < version && len(w.r.pending) == 0
		if !w.r.settled || w.started && !news {
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
	u := Update{Version: w.version}
	if !w.started || !f.since(w.cursor, u.add) {
		u = Update{Version: w.version, Full: true}
		f.all(u.add)
	}
	u.sort()
	w.started, w.cursor = true, f.head
	return u
}

// shownLocked is the version up to which proxies may see everything.
func (r *Registry) shownLocked() state.Version {
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
	w.r.watchers--
}
