package engine

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
)

func TestProgress(t *testing.T) {
	for _, c := range []struct {
		p       Progress
		percent int
		left    int64
	}{
		{Progress{Stage: StageLog, From: 100, At: 100, To: 300}, 0, 200},
		{Progress{Stage: StageLog, From: 100, At: 250, To: 300}, 75, 50},
		{Progress{Stage: StageLog, From: 100, At: 300, To: 300}, 100, 0},
		{Progress{Stage: StageLog, From: 100, At: 500, To: 300}, 100, 0}, // the log was longer than was known
		{Progress{}, 100, 0},
	} {
		require.Equal(t, c.percent, c.p.Percent(), "%+v", c.p)
		require.Equal(t, c.left, c.p.Left(), "%+v", c.p)
		require.Error(t, c.p.Err())
	}
	require.NoError(t, Progress{Stage: StageDone}.Err())
	require.EqualValues(t, 50, Progress{From: 100, At: 200, Took: 2 * time.Second}.Rate())
	require.Zero(t, Progress{At: 200}.Rate())
	require.EqualError(t, Progress{Stage: StageLog, From: 100, At: 250, To: 300, Records: 3}.Err(),
		"the broker is recovering its log: 75%, 3 records and 150 bytes replayed, at least 50 bytes left")
}

// TestRecoveryIsSeen: while a start reads the log, it tells how much of it.
func TestRecoveryIsSeen(t *testing.T) {
	b := newBench(t, Options{})
	fs := &hookFS{FS: b.fs}
	b.fs = fs
	b.mustOpen()
	b.define()
	big := strings.Repeat("x", 100<<10)
	for i := range 25 { // three segments
		b.mustSend(topicSync, fmt.Sprint(i, big))
	}
	end := b.engine.log.Written()
	b.kill()
	fs.FS.(*memfs.FS).Restart()

	reads, goOn := make(chan struct{}), make(chan struct{})
	n := 0
	fs.set(func(op, name string) error {
		if op == "read" && filepath.Base(filepath.Dir(name)) == store.LogDir && strings.HasSuffix(name, "2097152") {
			if n++; n == 2 { // the first one looks at its first record
				close(reads)
				<-goOn
			}
		}
		return nil
	})
	r := new(Recovery)
	require.Equal(t, StageWaiting, r.Progress().Stage)
	b.opt.Recovery = r
	opened := make(chan error, 1)
	go func() { opened <- b.open() }()
	select {
	case <-reads:
	case <-time.After(20 * time.Second):
		t.Fatal("the log is not read")
	}
	p := r.Progress()
	require.Equal(t, StageLog, p.Stage)
	require.Greater(t, p.Percent(), 50)
	require.Less(t, p.Percent(), 100)
	require.GreaterOrEqual(t, p.Records, int64(18))
	require.LessOrEqual(t, p.Left(), int64(end-p.At))
	require.Positive(t, p.Left())
	close(goOn)
	require.NoError(t, <-opened)
	p = r.Progress()
	require.Equal(t, StageDone, p.Stage)
	require.Equal(t, end, p.At)
	require.Equal(t, end, p.To)
	require.NoError(t, p.Err())
}

// TestRecoveryStops: and nothing is lost by that.
func TestRecoveryStops(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "one", "two")
	b.kill()
	b.fs.(*memfs.FS).Restart()
	b.opt.Recovery = new(Recovery)
	b.opt.Recovery.Stop()
	err := b.open()
	require.True(t, mqerr.Is(err, mqerr.Cancelled), "%v", err)
	b.opt.Recovery = nil
	b.mustOpen()
	require.Len(t, b.mustPop(topicSync, groupA), 2)
}
