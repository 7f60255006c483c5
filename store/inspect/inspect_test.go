package inspect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/inspect"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/storetest"
)

var key = queue.Key{Topic: 3, Queue: 1}

// stopped is the directory of a broker that stopped cleanly, with n messages.
func stopped(t *testing.T, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	b := storetest.MustOpen(t, vfs.OS, dir)
	b.Send(key, n)
	b.CloseClean()
	return dir
}

func check(t *testing.T, dir string) *inspect.Report {
	t.Helper()
	d, err := inspect.Open(vfs.OS, dir)
	require.NoError(t, err)
	r, err := d.Check()
	require.NoError(t, err)
	require.NoError(t, d.Close())
	return r
}

// flip changes one bit of a file.
func flip(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
}

func TestSoundDirectory(t *testing.T) {
	dir := stopped(t, 300)
	before := snapshot(t, dir)
	r := check(t, dir)
	require.Empty(t, r.Faults)
	require.Empty(t, r.Torn)
	require.EqualValues(t, 300, r.Messages)
	require.Equal(t, 1, r.Queues)
	require.Positive(t, r.Checkpoint)
	require.Equal(t, before, snapshot(t, dir), "reading changes nothing")
}

// snapshot is the content of every file.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() || strings.HasSuffix(path, "LOCK") {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	}))
	return out
}

func TestDamagedRecordIsNamed(t *testing.T) {
	dir := stopped(t, 300)
	flip(t, filepath.Join(dir, "log", strings.Repeat("0", 20)), 5000)
	r := check(t, dir)
	require.NotEmpty(t, r.Faults)
	require.Contains(t, r.Faults[0], strings.Repeat("0", 20)+" at byte")
}

func TestDamagedQueueIsNamed(t *testing.T) {
	dir := stopped(t, 300)
	names, err := os.ReadDir(filepath.Join(dir, "queue"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	flip(t, filepath.Join(dir, "queue", names[0].Name()), 4096+600)
	r := check(t, dir)
	require.NotEmpty(t, r.Faults)
	require.Contains(t, r.Faults[0], "topic 3 queue 1")
}

func TestCheckGoesOnBehindDamage(t *testing.T) {
	dir := stopped(t, 3000)
	segments, err := os.ReadDir(filepath.Join(dir, "log"))
	require.NoError(t, err)
	flip(t, filepath.Join(dir, "log", segments[0].Name()), 200_000)
	flip(t, filepath.Join(dir, "log", segments[2].Name()), 5)
	r := check(t, dir)
	require.Len(t, r.Faults, 2, "%q", r.Faults)
	require.Contains(t, r.Faults[0], segments[0].Name()+" at byte")
	require.Contains(t, r.Faults[1], segments[2].Name()+" at byte 0")
	require.Greater(t, r.Messages, int64(1500))
	require.Greater(t, r.Segments, 4)
}

func TestDeletedTopicIsNoFault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := storetest.MustOpen(t, vfs.OS, dir)
	before, after := queue.Key{Topic: 7}, queue.Key{Topic: 8}
	b.Send(before, 130)
	b.Send(after, 130)
	b.DeleteTopic(before.Topic)
	b.Send(key, 10)
	require.NoError(t, b.Checkpoint())
	b.DeleteTopic(after.Topic)
	b.Send(key, 10)
	b.Sync()
	b.Close()
	r := check(t, dir)
	require.Empty(t, r.Faults)
	require.Equal(t, 1, r.Queues)
}

func TestQueueWithWrongEndIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		first, more queue.Key
		want        string
	}{
		"too short": {key, key, "topic 3 queue 1 ends at offset 10, in the log it ends at 15"},
		"missing":   {key, queue.Key{Topic: 9, Queue: 4}, "topic 9 queue 4 is missing, in the log it ends at 5"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		b := storetest.MustOpen(t, vfs.OS, dir)
		b.Send(c.first, 10)
		state, err := b.Store.Queues().Encode(nil)
		require.NoError(t, err)
		b.Send(c.more, 5)
		require.NoError(t, b.Store.SaveCheckpoint(b.Store.Log().Tail(), []checkpoint.Section{{Name: queue.Section, Data: state}}))
		b.Close()
		r := check(t, dir)
		require.Len(t, r.Faults, 1, name)
		require.Contains(t, r.Faults[0], c.want)
	}
}

func TestUndecodableRecordIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := storetest.MustOpen(t, vfs.OS, dir)
	pos := b.Write(record.TypeSkip, 1, func(body []byte) { body[0] = 0xff })
	b.Sync()
	b.Close()
	r := check(t, dir)
	require.Len(t, r.Faults, 1)
	require.Contains(t, r.Faults[0], fmt.Sprintf("SKIP at %d", pos))
}

func TestDamagedCheckpointIsNamed(t *testing.T) {
	dir := stopped(t, 5)
	names, err := os.ReadDir(filepath.Join(dir, "checkpoint"))
	require.NoError(t, err)
	flip(t, filepath.Join(dir, "checkpoint", names[0].Name()), 30)
	r := check(t, dir)
	require.Len(t, r.Faults, 1)
	require.Contains(t, r.Faults[0], names[0].Name())
}

func TestTornTailIsNoFault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := storetest.MustOpen(t, vfs.OS, dir)
	b.Send(key, 5)
	b.Sync()
	b.Send(key, 1)
	b.Close()
	end := check(t, dir).End
	flip(t, filepath.Join(dir, "log", strings.Repeat("0", 20)), int64(end)-20)
	require.NoError(t, os.Remove(filepath.Join(dir, "log", "durable")), "nothing says that the last one was durable")
	r := check(t, dir)
	require.NotEmpty(t, r.Torn)
	require.Empty(t, r.Faults)
}

func TestRunningBrokerIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	b := storetest.MustOpen(t, vfs.OS, dir)
	defer b.Close()
	_, err := inspect.Open(vfs.OS, dir)
	require.True(t, mqerr.Is(err, mqerr.Exists), "%v", err)
}

func TestNoDirectory(t *testing.T) {
	_, err := inspect.Open(vfs.OS, t.TempDir())
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
}

func TestDump(t *testing.T) {
	dir := stopped(t, 20)
	d, err := inspect.Open(vfs.OS, filepath.Dir(dir)+"/data")
	require.NoError(t, err)
	defer d.Close()
	var all, some, lines bytes.Buffer
	_, err = d.Log(&all, inspect.Filter{Type: record.TypeMsg}, true)
	require.NoError(t, err)
	rows := strings.Split(strings.TrimSpace(all.String()), "\n")
	require.Len(t, rows, 20)
	var l inspect.Line
	require.NoError(t, json.Unmarshal([]byte(rows[3]), &l))
	require.Equal(t, "MSG", l.Type)
	_, err = d.Log(&some, inspect.Filter{From: record.Pos(l.Pos), Limit: 2}, false)
	require.NoError(t, err)
	require.Len(t, strings.Split(strings.TrimSpace(some.String()), "\n"), 2)
	require.Contains(t, some.String(), `"offset":3`)
	_, err = d.Queue(&lines, key.Topic, -1, false)
	require.NoError(t, err)
	require.Equal(t, 20, strings.Count(lines.String(), "topic 3 queue 1 offset"))
}
