package repl

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// TestBeginAnew: a follower whose next record was deleted is told to begin anew, by an error that its owner can see.
func TestBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b := duo(t)
		for a.log.Written() < 300<<10 {
			a.write(rng, 2, 4000)
		}
		a.flush()
		_, err := a.log.DropBefore(128 << 10)
		require.NoError(t, err)
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		err = b.failed()
		anew, ok := errors.AsType[*SnapshotError](err)
		require.True(t, ok, err)
		require.Equal(t, SnapshotError{Epoch: 1, End: 0, MasterFirst: 128 << 10, MasterEnd: a.log.Written()}, *anew)
		require.Equal(t, record.Epoch(1), b.epoch)
		closeAll(a, b)
	})
}

// TestManyEpochs: a follower with more epochs than one hello holds, which the master does not know, is cut where both
// logs are the same.
func TestManyEpochs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		a, b := duo(t)
		a.write(rng, 1, 1000)
		a.flush()
		b.follow()
		require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
		common := a.log.Written()
		inSync(t, b.follower, common)
		for e := range record.Epoch(200) {
			b.lead(view(2+2*e, 2, b, a), nil)
			b.write(rng, 1, 100)
			b.flush()
		}
		require.NoError(t, b.rest())
		b.views.applied.Store(0)
		a.lead(view(1001, 9, a), nil)
		a.write(rng, 1, 1000)
		a.flush()
		b.follow()
		require.Equal(t, 201, b.follower.o.Index.Len())
		require.NoError(t, b.follower.Follow(1001, a.self.Member, address(1)))
		inSync(t, b.follower, a.log.Written())
		sameLogs(t, a, b)
		closeAll(a, b)
	})
}

// TestDivergedBelowConfirm: who has other bytes where it takes them for confirmed stops, and touches nothing (I12).
func TestDivergedBelowConfirm(t *testing.T) {
	for _, tail := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			a, b := duo(t)
			a.write(rng, 1, 1000)
			a.flush()
			b.epoch = 1
			b.lead(view(1, 1, b), nil) // two masters of one epoch, which can't be
			if tail {
				b.put(record.TypeMsg, make([]byte, a.batch.Size()-record.HeaderSize)) // as long as the other one
				require.Equal(t, a.log.Written(), b.log.Written())
			} else {
				b.write(rng, 1, 1000)
				b.write(rng, 1, 1000)
			}
			b.flush()
			require.NoError(t, b.leader.Await(t.Context(), b.log.Written()))
			end := b.log.Written()
			require.NoError(t, b.rest())
			b.options = func(o *FollowerOptions) { o.Confirm = end }
			b.follow()
			require.NoError(t, b.follower.Follow(1, a.self.Member, address(1)))
			require.True(t, mqerr.Is(b.failed(), mqerr.Corrupt), "also if only the last record differs: %t", tail)
			require.Equal(t, end, b.log.Written())
			closeAll(a, b)
		})
	}
}
