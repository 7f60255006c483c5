package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// days is a retention that tests use.
const days = 24 * time.Hour

// fill stores messages in a topic until the log has another segment, and lets an hour pass.
func (b *bench) fill(t record.TopicID) {
	b.t.Helper()
	base := func() record.Pos {
		s := b.engine.log.Segments()
		return s[len(s)-1].Base
	}
	for was := base(); base() == was; {
		b.mustSend(t, strings.Repeat("x", 100_000))
	}
	b.clock.advance(time.Hour)
}

// retain deletes what is older, and must find something.
func (b *bench) retain(age time.Duration) {
	b.t.Helper()
	first := b.engine.log.First()
	require.NoError(b.t, b.engine.log.Sync())
	p, err := b.engine.Retain(b.t.Context(), retain.Limits{Age: age})
	require.NoError(b.t, err)
	require.Equal(b.t, retain.Goes, p.Why, "%v", p)
	require.Greater(b.t, b.engine.log.First(), first)
	require.Equal(b.t, p.D, b.engine.log.First())
}

// forget removes everything but the log, as far as it may be removed.
func (b *bench) forget() {
	b.t.Helper()
	for _, dir := range []string{"checkpoint", "queue", "index", "dedup"} {
		for _, name := range must(b.fs.List("data/" + dir)) {
			require.NoError(b.t, b.fs.Remove("data/"+dir+"/"+name))
		}
	}
}

// rebuilt starts again on the log alone.
func (b *bench) rebuilt() {
	b.t.Helper()
	b.kill()
	b.restartFS()
	b.forget()
	b.mustOpen()
}

func (b *bench) restartFS() {
	if m, ok := b.fs.(interface{ Restart() }); ok {
		m.Restart()
	}
}

// retaining is a broker with a few segments, of which nothing is read.
func retaining(t *testing.T) *bench {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	return b
}

func TestRetentionDeletesOldSegments(t *testing.T) {
	b := retaining(t)
	b.mustSend(topicSync, "first")
	for range 4 {
		b.fill(topicSync)
	}
	p, err := b.engine.Retain(t.Context(), retain.Limits{Age: 5 * time.Hour})
	require.NoError(t, err)
	require.Equal(t, retain.Young, p.Why)
	b.retain(2 * time.Hour)
	last := b.mustSend(topicSync, "last")[0]
	got := b.drain(topicSync, groupA)
	require.Contains(t, got, "last")
	require.NotContains(t, got, "first")
	for range 2 {
		b.rebuilt()
		r, err := b.search(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), Queue: last.Queue, Offset: last.Offset, Max: 1})
		require.NoError(t, err)
		require.Len(t, r.Messages, 1)
		require.Empty(t, b.drain(topicSync, groupA))
		b.mustSend(topicSync, "more")
		require.Equal(t, []string{"more"}, b.drain(topicSync, groupA))
	}
}

// TestRetentionOverDamage: a part of the log that is lost, at the beginning of a file, and a message that was found
// to be damaged since, do not keep what is old for ever where the operator chose to go on without them.
//
//fault:damage the first record of a file is lost, and a message that is to be carried forward is damaged, on-damage skip => retention goes on
func TestRetentionOverDamage(t *testing.T) {
	b := retaining(t)
	m := message("late")
	m.Type, m.DeliverAt = brokerapi.Delay, b.clock.Wall()+(48*time.Hour).Milliseconds()
	late := b.sendThese(topicSync, m)
	for range 4 {
		b.fill(topicSync)
	}
	third := b.engine.log.Segments()[3].Base
	b.kill()
	b.restartFS()
	b.damage(third, third+record.HeaderSize+20)
	b.skip, b.opt.SkipDamage = true, true
	b.mustOpen()
	require.Len(t, b.engine.Holes(), 1)
	b.damage(0, record.Pos(late[0].Pos)+record.HeaderSize+20)
	b.retain(30 * time.Minute)
	first := b.engine.log.First()
	require.Greater(t, first, third)
	b.rebuilt()
	require.Equal(t, first, b.engine.log.First())
	b.clock.advance(49 * time.Hour)
	b.mustSend(topicSync, "more")
	b.until("the broker goes on", func() bool { return slices.Contains(b.drain(topicSync, groupA), "more") })
}

// damage changes the byte at a position of the file that begins at base.
func (b *bench) damage(base, pos record.Pos) {
	b.t.Helper()
	f, err := b.fs.Open(fmt.Sprintf("data/log/%020d", base))
	require.NoError(b.t, err)
	one := make([]byte, 1)
	_, err = f.ReadAt(one, int64(pos-base))
	require.NoError(b.t, err)
	one[0] ^= 0x40
	_, err = f.WriteAt(one, int64(pos-base))
	require.NoError(b.t, err)
	require.NoError(b.t, f.Close())
}

// TestRetentionAfterAHole: a message that came late and was done by everybody is left out, by this step and by
// those after it.
func TestRetentionAfterAHole(t *testing.T) {
	b := retaining(t)
	m := message("late")
	m.Type, m.DeliverAt = brokerapi.Delay, b.clock.Wall()+(270*time.Minute).Milliseconds()
	b.sendThese(topicSync, m)
	for range 5 {
		b.fill(topicSync)
	}
	b.until("the delayed message comes", func() bool { return slices.Contains(b.drain(topicSync, groupA), "late") })
	for range 2 {
		b.fill(topicSync)
		b.drain(topicSync, groupA)
	}
	b.retain(330 * time.Minute)
	first := b.engine.log.First()
	b.retain(250 * time.Minute)
	require.Greater(t, b.engine.log.First(), first)
	b.rebuilt()
	require.Empty(t, b.drain(topicSync, groupA))
}

// drain receives and acks all that is there for a group.
func (b *bench) drain(t record.TopicID, g record.GroupID) []string {
	b.t.Helper()
	var out []string
	for {
		got := b.mustPop(t, g)
		if len(got) == 0 {
			return out
		}
		for _, err := range b.ack(t, g, got...) {
			require.NoError(b.t, err)
		}
		for _, m := range got {
			out = append(out, strings.TrimRight(m.body, "x"))
		}
	}
}

func (b *bench) search(req brokerapi.FindRequest) (*brokerapi.FindReply, error) {
	return b.proxy.Find(b.t.Context(), &req)
}

// TestRetentionOnDisk does the same on the machine's file system: after heavy retention the views come back from
// the log alone as they were.
func TestRetentionOnDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	b := newBench(t, Options{})
	b.fs = vfs.OS
	b.mustOpen()
	b.define()
	for round := range 3 {
		b.sendAll(topicSync, b.later(fmt.Sprint("later ", round), time.Duration(20+round)*time.Hour))
		b.mustSend(topicSync, fmt.Sprint("a ", round), fmt.Sprint("b ", round))
		held, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: 1, Invisible: 8 * time.Hour})
		require.NoError(t, err)
		require.Len(t, held, 1)
		b.fill(topicAsync)
		b.fill(topicAsync)
		b.retain(90 * time.Minute)
		b.settle()
		before := b.contents()
		b.rebuilt()
		after := b.contents()
		for name := range before {
			require.Equal(t, before[name], after[name], "view %s, round %d", name, round)
		}
	}
	b.until("no file is left of what was deleted; one is prepared, one is the mark", func() bool {
		return len(must(b.fs.List("data/log"))) == len(b.engine.log.Segments())+2
	})
	b.clock.advance(30 * time.Hour)
	b.settle()
	require.Subset(t, b.drain(topicSync, groupA), []string{"later 0", "later 1", "later 2"})
}

// contents are what a start from the log alone must give of all views, at rest.
func (b *bench) contents() map[string]string {
	b.t.Helper()
	var out map[string]string
	require.NoError(b.t, b.engine.call(b.t.Context(), func(w *writer) {
		w.flushAcks()
		w.flushEndings()
		out = worldViews(w.e)
	}))
	delete(out, sectionBase) // a start begins an epoch
	delete(out, sectionEpochs)
	delete(out, sectionDups) // what its files had is gone
	return out
}
