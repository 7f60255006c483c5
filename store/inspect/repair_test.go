package inspect_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/inspect"
	"github.com/perigee-mq/perigee/store/storetest"
)

func repair(t *testing.T, dir string, apply bool) (*inspect.Plan, string) {
	t.Helper()
	d, err := inspect.Open(vfs.OS, dir)
	require.NoError(t, err)
	defer d.Close()
	p, err := d.Repair(nil)
	require.NoError(t, err)
	var said bytes.Buffer
	require.NoError(t, p.Write(&said))
	if apply {
		require.NoError(t, d.Apply(p))
	}
	return p, said.String()
}

// TestRepair shows what is lost and changes nothing; then it does it, and the next start needs no word.
//
//fault:damage a record is damaged and a file is missing, perigee debug repair => shows file, byte, topic, queue and offsets; changes nothing without --apply; with it starts go on
func TestRepair(t *testing.T) {
	dir := stopped(t, 3000)
	segments, err := os.ReadDir(filepath.Join(dir, "log"))
	require.NoError(t, err)
	flip(t, filepath.Join(dir, "log", segments[0].Name()), 200_000)
	require.NoError(t, os.Remove(filepath.Join(dir, "log", segments[2].Name())))
	before := snapshot(t, dir)
	p, said := repair(t, dir, false)
	require.True(t, p.New())
	require.Len(t, p.Lost, 2)
	require.Contains(t, said, segments[0].Name()+" at byte")
	require.Equal(t, map[string]int{"MSG": 1}, p.Lost[0].Records)
	require.Zero(t, p.Lost[0].UnknownBytes)
	require.Len(t, p.Lost[0].Messages, 1)
	one := p.Lost[0].Messages[0]
	require.Equal(t, key.Topic, one.Topic)
	require.Equal(t, key.Queue, one.Queue)
	require.EqualValues(t, 1, one.To-one.From)
	require.Len(t, p.Lost[1].Messages, 1, "consecutive ones: %v", p.Lost[1].Messages)
	require.Greater(t, int(p.Lost[1].Messages[0].To-p.Lost[1].Messages[0].From), 100)
	require.Contains(t, said, "messages of topic 3")
	require.Contains(t, said, "unknown: ")
	require.Equal(t, before, snapshot(t, dir), "nothing was changed")

	p, _ = repair(t, dir, true)
	lost := 0
	for _, l := range p.Lost {
		for _, m := range l.Messages {
			lost += int(m.To - m.From)
		}
	}
	after := snapshot(t, dir)
	for name, data := range before {
		require.True(t, after[name] == data, "%s was changed", name)
		delete(after, name)
	}
	require.Len(t, after, 3, "the list of holes, and a file for each")
	p, _ = repair(t, dir, false)
	require.False(t, p.New())
	require.Len(t, p.Lost, 2)
	r := check(t, dir)
	require.Empty(t, r.Faults)
	require.Len(t, r.Holes, 2)
	require.EqualValues(t, 3000-lost, r.Messages)
	b := storetest.MustOpen(t, vfs.OS, dir)
	b.CloseClean()
}

// TestDumpBehindDamage: the dump says what is missing and goes on.
func TestDumpBehindDamage(t *testing.T) {
	dir := stopped(t, 300)
	flip(t, filepath.Join(dir, "log", strings.Repeat("0", 20)), 5000)
	d, err := inspect.Open(vfs.OS, dir)
	require.NoError(t, err)
	defer d.Close()
	var out bytes.Buffer
	tail, err := d.Log(&out, inspect.Filter{}, true)
	require.NoError(t, err)
	require.Error(t, tail.Damage)
	require.Equal(t, 1, strings.Count(out.String(), `"lost":`))
	require.Greater(t, strings.Count(out.String(), "\n"), 298)
	require.NotContains(t, out.String(), `"Offset"`, "one spelling")
}
