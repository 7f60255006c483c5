package store_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/storetest"
)

// TestAnew: a directory that is to copy the log of another replica keeps only who it is and what it promised.
// The power goes at each operation of the disk on the way: either the directory is as it was, or the next start
// ends what was begun.
//
//fault:power the power goes at each operation of the disk while a replica empties its directory to copy another one's log => the directory is as it was, or the next start goes on; identity and promise are never lost
func TestAnew(t *testing.T) {
	base := memfs.New()
	b, err := storetest.Open(t, base, dir)
	require.NoError(t, err)
	id := b.Store.Identity()
	require.NoError(t, b.Store.Promise(7, 3))
	b.Send(queue.Key{Topic: 1}, 4000)
	end := b.Store.Log().Written()
	require.Greater(t, end, record.Pos(2*storetest.SegmentBytes))
	b.CloseClean()

	const at = 5 << 20
	for cut := 1; ; cut++ {
		fs := base.Crash(rand.New(rand.NewPCG(1, 1)), 2)
		fs.CutPower(cut)
		err := store.Anew(options(fs), at)
		after := fs.Crash(rand.New(rand.NewPCG(1, uint64(cut))), 0.5)
		s, openErr := store.Open(options(after))
		require.NoError(t, openErr, "power cut at operation %d", cut)
		require.Equal(t, id, s.Identity())
		epoch, inc := s.Promised()
		require.Equal(t, []uint64{7, 3}, []uint64{uint64(epoch), inc})
		begin, is := s.Copying()
		_, recoverErr := s.Log().Recover(s.Log().First(), nopApply)
		require.NoError(t, recoverErr, "power cut at operation %d", cut)
		if is {
			require.EqualValues(t, at, begin)
			require.Equal(t, []record.Pos{at, at}, []record.Pos{s.Log().First(), s.Log().Written()})
			require.Nil(t, s.Checkpoint())
			require.Empty(t, s.Queues().Keys())
			require.NoError(t, s.Copied())
		} else {
			require.Error(t, err)
			require.Equal(t, end, s.Log().Written(), "power cut at operation %d", cut)
			require.NotNil(t, s.Checkpoint())
		}
		require.NoError(t, s.Close())
		s = open(t, after)
		_, is = s.Copying()
		require.False(t, is)
		require.NoError(t, s.Close())
		if err == nil {
			require.Greater(t, cut, 10)
			return
		}
	}
}

func TestAnewRefuses(t *testing.T) {
	fs := memfs.New()
	s := open(t, fs)
	require.Error(t, store.Anew(options(fs), 0), "a process has it")
	require.NoError(t, s.Close())
	require.True(t, mqerr.Is(store.Anew(options(fs), 7), mqerr.Invalid))
	require.NoError(t, vfs.ReplaceFile(fs, dir+"/copy.json", []byte(`{"at":0,"emptied":false,"sum":"00000000"}`)))
	require.Contains(t, refused(t, fs, mqerr.Corrupt), "copy.json")
}
