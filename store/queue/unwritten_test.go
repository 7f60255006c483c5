package queue

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// TestFilesThatCannotGrow fails every kind of operation that needs space for a while, from different moments
// on: appends go on, everything can be read, no checkpoint is encoded, and afterwards all of it is on disk.
func TestFilesThatCannotGrow(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpCreate, faultfs.OpAllocate, faultfs.OpWrite} {
		for _, short := range []bool{false, true} {
			for _, before := range []record.QueueOffset{0, 50, 101, 150, 702, 750} { // a file has 7 extents of 101 entries
				fs := faultfs.Wrap(memfs.New())
				s := openStore(t, small(fs))
				a, b := Key{1, 0}, Key{1, 3}
				fill(t, s, a, before)
				if before > 0 {
					checkpoint(t, s)
				}
				fs.Set(faultfs.Fault{Op: op, Nth: 1, Always: true, Short: short, Err: syscall.ENOSPC})
				fill(t, s, a, before+900)
				fill(t, s, b, 350)
				requireQueue(t, s, a, 0, before+900)
				requireQueue(t, s, b, 0, 350)
				_, err := s.Encode(nil)
				require.ErrorIs(t, err, syscall.ENOSPC, "%v from %d on", op, before)
				require.ErrorIs(t, s.Prepare(), syscall.ENOSPC)
				require.Positive(t, s.Stats().Unwritten)
				fill(t, s, b, 400)
				requireQueue(t, s, b, 0, 400)

				fs.Clear()
				require.NoError(t, s.Prepare())
				require.Zero(t, s.Stats().Unwritten)
				fill(t, s, b, 700)
				dir := checkpoint(t, s)
				require.NoError(t, s.Close())
				s = openStore(t, small(fs))
				require.NoError(t, s.Decode(dir))
				requireQueue(t, s, a, 0, before+900)
				requireQueue(t, s, b, 0, 700)
				require.NoError(t, s.Close())
			}
		}
	}
}

// TestUnwrittenModel appends, drops, saves and reads on a disk whose size changes all the time.
func TestUnwrittenModel(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 5))
		fs := memfs.New()
		s := openStore(t, small(fs))
		var lo, hi [4]record.QueueOffset
		for range 200 {
			k := Key{1, record.QueueID(rng.IntN(4))}
			switch rng.IntN(8) {
			case 0:
				fs.SetBudget(max(1, fs.Used()+rng.Int64N(2*testFileBytes)-testFileBytes/2))
			case 1:
				fs.SetBudget(0)
				require.NoError(t, s.Prepare(), "seed %d", seed)
			case 2:
				if err := s.Prepare(); err != nil {
					require.True(t, vfs.IsFull(err), "seed %d: %v", seed, err)
				}
			case 3:
				if _, err := s.Encode(nil); err == nil {
					require.Zero(t, s.Stats().Unwritten, "seed %d: a checkpoint of what is in memory only", seed)
					require.NoError(t, s.Sync())
					require.NoError(t, s.Saved())
				} else {
					require.True(t, vfs.IsFull(err), "seed %d: %v", seed, err)
				}
			case 4:
				lo[k.Queue] += record.QueueOffset(rng.IntN(int(hi[k.Queue]-lo[k.Queue]) + 1))
				s.DropBefore(k, lo[k.Queue])
			default:
				hi[k.Queue] += record.QueueOffset(rng.IntN(250))
				fill(t, s, k, hi[k.Queue])
			}
			if rng.IntN(10) == 0 {
				requireQueue(t, s, k, lo[k.Queue], hi[k.Queue])
			}
		}
		fs.SetBudget(0)
		dir := checkpoint(t, s)
		require.NoError(t, s.Close())
		s = openStore(t, small(fs))
		require.NoError(t, s.Decode(dir))
		for q := range lo {
			requireQueue(t, s, Key{1, record.QueueID(q)}, lo[q], hi[q])
		}
		require.NoError(t, s.Close())
	}
}

// TestPrepare: there is always a file ahead, and one that is too many goes.
func TestPrepare(t *testing.T) {
	s := openStore(t, small(memfs.New()))
	require.NoError(t, s.Prepare())
	require.Equal(t, 1, s.Stats().Files, "before the first message")
	k := Key{1, 0}
	for n := record.QueueOffset(1); n < 60; n++ {
		fill(t, s, k, n*ExtentEntries)
		require.NoError(t, s.Prepare())
		require.GreaterOrEqual(t, s.files.free(), 3)
		require.LessOrEqual(t, s.files.free(), 3+7)
	}
	s.Drop(1)
	for range 4 {
		checkpoint(t, s)
	}
	require.LessOrEqual(t, s.Stats().Files, 2)
	require.NoError(t, s.Prepare())
	require.NoError(t, s.Close())
	require.NoError(t, s.Prepare(), "nothing happens any more")
	require.False(t, mqerr.Is(s.Prepare(), mqerr.Internal))
}
