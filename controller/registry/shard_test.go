package registry

import (
	"testing"
	"testing/synctest"

	"github.com/perigee-mq/perigee/controller/state"
)

// A deleted broker group leaves the routes, and its broker is told that it has no place any more.
func TestDeletedShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{})
		w.r.Start()
		a, b := w.broker("a"), w.broker("b")
		sa, sb := w.open(a), w.open(b)
		defer sa.Close()
		defer sb.Close()
		w.beat(sa, a, 0)
		w.beat(sb, b, 0)
		p := w.r.Watch(Viewer{})
		defer p.Close()
		expect(t, "first", next(t, p.Next), "full, a:e1 m1 live, b:e1 m1 live, 1 keys")
		w.apply(state.Resign{Shard: b.Shard, Epoch: b.Epoch, Replica: b.Replica, Inc: b.Inc})
		expect(t, "resigned", next(t, p.Next), "b:e1 m0")
		w.apply(state.DeleteShard{Shard: b.Shard})
		expect(t, "deleted", next(t, p.Next), "full, a:e1 m1 live, 1 keys")
		expect(t, "its broker", next(t, sb.Next), "fenced")
		expect(t, "another broker", next(t, sa.Next), "full")
	})
}
