package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBatchOfNowAndLater: a message that shows at once does not wait for one behind it in the same request and
// queue that has no place yet.
func TestBatchOfNowAndLater(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	now, later := b.later("now", -time.Second), b.later("later", time.Minute)
	now.Queue, later.Queue, now.GroupHash, later.GroupHash = 2, 2, 7, 7
	b.sendAll(topicSync, now, later)
	require.Equal(t, []string{"now"}, b.take(topicSync, groupA))
	b.clock.advance(time.Minute)
	b.settle()
	require.Equal(t, []string{"later"}, b.take(topicSync, groupA))
}
