package chaostest

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/crashtest/load"
)

// watchers follow every controller and take down what each says of the broker groups.
type watchers struct {
	began  time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup
	conns  []*grpc.ClientConn

	mu      sync.Mutex
	seen    []sight
	elected []election
	latest  map[string]*controllerv1.Shard // of the highest epoch and version
	wake    chan struct{}                  // closed at the next change
}

// sight is a broker group as one controller showed it.
type sight struct {
	controller, stream int
	at                 time.Duration // since the watchers began
	index              uint64        // of Raft; only grows on a stream
	shard              *controllerv1.Shard
}

func newWatchers(p *place) *watchers {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watchers{began: time.Now(), cancel: cancel, latest: map[string]*controllerv1.Shard{}, wake: make(chan struct{})}
	for i, addr := range p.ctl {
		conn, err := load.Service{}.Connect(addr)
		if err != nil {
			panic(err) // an address that is none
		}
		w.conns = append(w.conns, conn)
		w.wg.Go(func() {
			for stream := 0; ctx.Err() == nil; stream++ {
				w.follow(ctx, i, stream, conn)
				pause(20 * time.Millisecond)
			}
		})
	}
	return w
}

// follow takes down one stream.
func (w *watchers) follow(ctx context.Context, controller, stream int, conn *grpc.ClientConn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := controllerv1.NewControllerServiceClient(conn).Watch(ctx, &controllerv1.WatchRequest{Hello: &controllerv1.Hello{Version: 1, Release: "chaos"}})
	for err == nil {
		var u *controllerv1.WatchUpdate
		if u, err = st.Recv(); err == nil {
			w.take(controller, stream, u)
		}
	}
}

func (w *watchers) take(controller, stream int, u *controllerv1.WatchUpdate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range u.GetShards() {
		w.seen = append(w.seen, sight{controller, stream, time.Since(w.began), u.GetIndex(), s})
		old := w.latest[s.GetName()]
		if old == nil || after(versionOf(s), versionOf(old)) >= 0 { // who is live is what the last one says
			w.latest[s.GetName()] = s
		}
	}
	close(w.wake)
	w.wake = make(chan struct{})
}

// now is a group as it was last heard of.
func (w *watchers) now(group string) *controllerv1.Shard {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest[group]
}

// await waits until a group is as wanted, at most so long, and tells whether it came.
func (w *watchers) await(group string, d time.Duration, is func(*controllerv1.Shard) bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		w.mu.Lock()
		s, wake := w.latest[group], w.wake
		w.mu.Unlock()
		if s != nil && is(s) {
			return true
		}
		select {
		case <-wake:
		case <-timer.C:
			return false
		}
	}
}

// sights is all that was seen so far, and the elections that were asked for.
func (w *watchers) sights() ([]sight, []election) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen), slices.Clone(w.elected)
}

// elect asks for another master of a group.
func (w *watchers) elect(group string) error {
	var err error
	for _, conn := range w.conns {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		from := time.Since(w.began)
		var r *controllerv1.ElectResponse
		r, err = controllerv1.NewShardServiceClient(conn).Elect(ctx, &controllerv1.ElectRequest{ShardName: group})
		cancel()
		if err == nil {
			w.mu.Lock()
			w.elected = append(w.elected, election{from, time.Since(w.began), r.GetShard()})
			w.mu.Unlock()
			return nil
		}
	}
	return err
}

// leads is the number of the controller that leads, from 0, or -1.
func (w *watchers) leads() int {
	leader, term := -1, uint64(0)
	for i, conn := range w.conns {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		r, err := controllerv1.NewClusterServiceClient(conn).Node(ctx, &controllerv1.NodeRequest{})
		cancel()
		if err == nil && r.GetRole() == "Leader" && r.GetTerm() >= term {
			leader, term = i, r.GetTerm()
		}
	}
	return leader
}

func (w *watchers) end() {
	w.cancel()
	w.wg.Wait()
	for _, c := range w.conns {
		_ = c.Close()
	}
}
