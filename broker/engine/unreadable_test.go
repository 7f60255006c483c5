package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// TestUnreadableMessages: the disk loses sectors of files that are not mapped any more, with a message that is to be handed
// out and one that retention has to carry. Both are damaged messages, what is around them comes, and the broker goes on.
//
//fault:damage the disk cannot read sectors with messages (EIO) while the broker runs => they count as damaged, by file; what is around them is handed out and carried forward
func TestUnreadableMessages(t *testing.T) {
	fs := faultfs.Wrap(newBench(t, Options{}).fs)
	b := newBench(t, Options{})
	b.fs = fs
	b.mustOpen()
	b.define()
	sent := b.mustSend(topicSync, "one", "two", "three")
	late := b.sendAll(topicSync, b.later("late", 10*days), b.later("late too", 10*days))
	for b.engine.log.Hot(record.Pos(late[1].Pos)) {
		b.fill(topicAsync)
	}
	for _, pos := range []int64{int64(sent[1].Pos), int64(late[0].Pos)} {
		fs.Bad(segment.Name(0), pos+inBody, pos+inBody+1)
	}
	got := b.mustPop(topicSync, groupA)
	require.ElementsMatch(t, []string{"one", "three"}, bodies(got))
	b.ack(topicSync, groupA, got...)
	require.EqualValues(t, 1, b.engine.counts.Damaged.Load())
	what, err := b.traced(topicSync, sent[0].Pos)
	require.NoError(t, err)
	require.Equal(t, "acked", what[len(what)-1], "%v", what)

	b.age(3, 3*days)
	s, err := b.engine.Retention(t.Context())
	require.NoError(t, err)
	require.Positive(t, s.Damaged)
	require.Zero(t, s.Failures)
	require.Greater(t, b.engine.log.First(), record.Pos(late[1].Pos))
	require.EqualValues(t, 2, b.engine.DamagedRecords()[segment.Name(0)])
	b.clock.advance(11 * days)
	all := []string{}
	b.until("the message that could be carried comes", func() bool {
		b.clock.advance(time.Second)
		all = append(all, b.drain(topicSync, groupA)...)
		return slices.Contains(all, "late too")
	})
	require.NotContains(t, all, "late")
	require.NoError(t, b.engine.Failure())
}
