package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
)

// TestEpochsOfFilesThatStay: what is deleted is gone for the views when the log says so, its files go later. A start between
// knows where the epochs of the rest begin.
//
//fault:kill the process dies when old messages are deleted, and their files are still there => the next start works, and deletes them
func TestEpochsOfFilesThatStay(t *testing.T) {
	b := newBench(t, Options{})
	fs := faultfs.Wrap(b.fs)
	b.fs = fs
	b.mustOpen()
	b.define()
	for range 3 { // epochs that end in the first file
		b.mustSend(topicSync, "x")
		b.kill()
		b.mustOpen()
	}
	for range 4 {
		b.fill(topicSync)
	}
	require.NoError(t, b.engine.log.Sync())
	fs.Set(faultfs.Fault{Op: faultfs.OpRename, Path: "data/log/", Nth: 1, Always: true})
	_, err := b.engine.Retain(t.Context(), retain.Limits{Age: 2 * time.Hour})
	require.ErrorIs(t, err, faultfs.ErrInjected)
	b.kill()
	fs.Clear()

	b.mustOpen()
	require.Zero(t, b.engine.log.First(), "the files are there")
	b.kill()
	b.mustOpen()
	x, err := b.engine.Epochs()
	require.NoError(t, err)
	require.Greater(t, x.First(), b.engine.log.First())
	segs := b.engine.log.Segments()
	require.Equal(t, segs[1].Base, x.First())
	for range 4 {
		b.fill(topicSync)
	}
	b.retain(2 * time.Hour)
}
