package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// TestRefusedStartKeepsCheckpoints: the newest checkpoint is whole, and yet cannot be decoded, so that all of the log is
// read. The log is damaged: the start is refused, and every checkpoint is as it was for the next one.
//
//fault:damage the newest checkpoint cannot be decoded, and the log is damaged => the start is refused, every checkpoint is there as it was; with the log brought back the next one comes up
func TestRefusedStartKeepsCheckpoints(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicSync, "one", "two")
	b.stopped()
	b.mustSend(topicSync, "three")
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.NoError(t, b.store.Close())
	b.engine = nil
	names, err := checkpoint.List(b.fs, "data/checkpoint")
	require.NoError(t, err)
	require.Len(t, names, 2)
	newest := "data/checkpoint/" + names[1]
	c, err := checkpoint.Read(b.fs, newest)
	require.NoError(t, err)
	for i := range c.Sections {
		if c.Sections[i].Name == sectionGroups {
			c.Sections[i].Data = []byte("no groups")
		}
	}
	require.NoError(t, vfs.ReplaceFile(b.fs, newest, c.Encode()))
	was := map[string]string{}
	for _, name := range must(b.fs.List("data/checkpoint")) {
		was[name] = string(must(vfs.ReadFile(b.fs, "data/checkpoint/"+name)))
	}
	b.damageRecord(record.Pos(sent[0].Pos), inBody)
	for range 2 {
		err = b.open()
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
		require.ErrorContains(t, err, "data/log/")
		is := map[string]string{}
		for _, name := range must(b.fs.List("data/checkpoint")) {
			is[name] = string(must(vfs.ReadFile(b.fs, "data/checkpoint/"+name)))
		}
		require.Equal(t, was, is)
	}
	b.damageRecord(record.Pos(sent[0].Pos), inBody) // as it was
	b.mustOpen()
	require.ElementsMatch(t, []string{"one", "two", "three"}, b.drain(topicSync, groupA))
}
