package topic

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/store/record"
)

// The longest window is that of the topics that exist, after every change and after a reading.
func TestLongestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := New()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			d := Definition{ID: record.TopicID(rapid.IntRange(1, 5).Draw(t, "id")), Queues: 1, Limits: Limits{DuplicatesMS: rapid.Int64Range(-1, 4).Draw(t, "window")}}
			m, err := d.Meta()
			require.NoError(t, err)
			m.Deleted = rapid.IntRange(0, 3).Draw(t, "delete") == 0
			require.NoError(t, table.Apply(&m))
			want := int64(0)
			for _, d := range table.All() {
				want = max(want, d.Limits.DuplicatesMS)
			}
			require.Equal(t, want, table.LongestWindow())
			state, err := table.Encode(nil)
			require.NoError(t, err)
			again := New()
			require.NoError(t, again.Decode(state))
			require.Equal(t, table.windows, again.windows)
		}
	})
}
