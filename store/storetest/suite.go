package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Suite is what a store must do on any file system. dir does not exist yet.
func Suite(t *testing.T, fs vfs.FS, dir string) {
	a, c := queue.Key{Topic: 1, Queue: 0}, queue.Key{Topic: 1, Queue: 7}
	gone, again := queue.Key{Topic: 2, Queue: 0}, queue.Key{Topic: 3, Queue: 0}

	b := MustOpen(t, fs, dir)
	require.False(t, b.Store.Clean())
	require.Nil(t, b.Store.Checkpoint())
	id := b.Store.Identity()
	b.Send(a, 400)
	b.Send(c, 5)
	b.Send(gone, 300)
	b.Require(a, 400)
	_, err := store.Open(Options(fs, dir))
	require.True(t, mqerr.Is(err, mqerr.Exists), "%v", err)
	require.ErrorContains(t, err, "stop it first")
	b.Sync()
	b.Close()

	b = MustOpen(t, fs, dir) // from the log alone
	require.Equal(t, id, b.Store.Identity())
	require.Equal(t, int64(1+400+5+300), b.Replayed)
	b.Require(a, 400)
	b.Require(c, 5)
	b.Require(gone, 300)
	require.NoError(t, b.Checkpoint())
	b.Send(a, 2000) // more than a segment
	b.DeleteTopic(gone.Topic)
	b.Send(again, 120)
	b.Sync()
	b.Close()

	b = MustOpen(t, fs, dir) // from a checkpoint
	require.Equal(t, int64(2000+1+120), b.Replayed)
	b.Require(a, 2400)
	b.Require(c, 5)
	b.Require(gone, 0)
	b.Require(again, 120)
	b.Send(again, 1)
	b.CloseClean()

	s, err := store.Open(Options(fs, dir))
	require.NoError(t, err)
	require.NoError(t, s.Queues().Decode(section(t, s)))
	r, err := s.Log().Recover(s.Checkpoint().Pos, func(record.Record) error { return nil })
	require.NoError(t, err)
	require.Zero(t, r.Records, "nothing is to be replayed after a clean stop")
	require.True(t, s.Clean())
	require.NoError(t, s.Close())

	b = MustOpen(t, fs, dir)
	require.False(t, b.Store.Clean(), "the marker is gone after one start")
	b.Require(again, 121)
	require.NoError(t, b.Store.Distrust())
	require.True(t, mqerr.Is(b.Checkpoint(), mqerr.Corrupt), "a checkpoint of what is damaged")
	b.Close()

	b = MustOpen(t, fs, dir)
	require.Greater(t, b.Replayed, int64(2700), "everything is replayed")
	b.Require(a, 2400)
	b.Require(again, 121)
	b.CloseClean()
}

func section(t *testing.T, s *store.Store) []byte {
	t.Helper()
	require.NotNil(t, s.Checkpoint())
	dir, err := s.Checkpoint().Section(queue.Section)
	require.NoError(t, err)
	return dir
}
