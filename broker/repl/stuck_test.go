package repl

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// TestStuck: a master takes no requests while too few replicas are in sync, or after what is written has waited too
// long to be confirmed, and takes them again by itself.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork()
		a, b := newNode(t, w, 1, memfs.New()), newNode(t, w, 2, memfs.New())
		defer a.close()
		defer b.close()
		l := a.lead(view(1, 1, a, b), func(o *LeaderOptions) {
			o.Times = quorum.Times{Silent: time.Hour, Gone: time.Hour}
		})
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		inSync(t, b.follower, a.log.Written())
		time.Sleep(10 * time.Second)
		require.NoError(t, l.Stuck(), "nothing waits")

		require.NoError(t, b.rest())
		a.write(rand.New(rand.NewPCG(1, 1)), 1, 100)
		a.flush()
		time.Sleep(2 * time.Second)
		require.NoError(t, l.Stuck(), "not for long")
		time.Sleep(2 * time.Second)
		require.True(t, mqerr.Is(l.Stuck(), mqerr.NotEnoughReplicas), "%v", l.Stuck())
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		inSync(t, b.follower, a.log.Written())
		time.Sleep(time.Second)
		require.NoError(t, l.Stuck())

		v := view(1, 2, a)
		v.MinISR, v.Replicas = 2, []quorum.Member{a.self.Member, b.self.Member}
		require.NoError(t, b.rest())
		l.Controller(v)
		time.Sleep(300 * time.Millisecond)
		require.ErrorContains(t, l.Stuck(), "2 copies are needed")
	})
}
