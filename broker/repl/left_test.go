package repl

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// TestLeft: when a follower stops in order its master asks at once for a set without it.
func TestLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork()
		a, b := newNode(t, w, 1, memfs.New()), newNode(t, w, 2, memfs.New())
		defer a.close()
		defer b.close()
		asked := make(chan quorum.Proposal, 1)
		v := view(1, 1, a, b)
		v.MinISR = 1
		a.lead(v, func(o *LeaderOptions) {
			o.Times = quorum.Times{Silent: time.Hour, Gone: time.Hour}
			o.Propose = func(_ context.Context, p quorum.Proposal) (quorum.Outcome, quorum.View) {
				select {
				case asked <- p:
				default: // asked again
				}
				return quorum.Unknown, quorum.View{}
			}
		})
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		inSync(t, b.follower, a.log.Written())
		require.NoError(t, b.rest())
		select {
		case p := <-asked:
			require.True(t, slices.Equal([]quorum.Member{a.self.Member}, p.Set))
		case <-time.After(time.Second):
			t.Fatal("the follower is waited for")
		}
	})
}
