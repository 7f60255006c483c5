package pop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/store/record"
)

// TestCut: what lies below a cut stays leased, waiting or passed over; from the cut on nothing was ever handed out.
func TestCut(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		tab := New(Options{
			Ordered: func(record.GroupID) bool { return ordered },
			Groups: func(_ Key, off record.QueueOffset, dst []uint64) (int, error) {
				dst[0] = uint64(off) % 2 // of two message groups
				return 1, nil
			},
		})
		k := Key{Group: 1, Topic: 1}
		sec := record.PopSection{}
		for off := range record.QueueOffset(200) {
			if !ordered || off < 2 {
				sec.Items = append(sec.Items, record.PopItem{Offset: off, Attempt: 1, Prev: -1})
			}
		}
		if ordered {
			sec.Next = 200
		}
		require.NoError(t, tab.ApplyLease(64, &record.PopCk{Group: 1, Topic: 1, Until: 1000, Ordered: ordered, Sections: []record.PopSection{sec}}))
		require.Equal(t, int64(200), tab.Undone(k, 0))
		for _, end := range []record.QueueOffset{300, 200, 130, 70, 1} {
			tab.Cut(k, end)
			require.Empty(t, tab.check())
			want := min(end, 200)
			require.Equal(t, int64(want), tab.Undone(k, 0))
			require.Equal(t, want, tab.Stats(k).Next)
			require.Equal(t, Current, tab.Check(k, 0, 64))
			require.True(t, tab.IsUndone(k, want-1))
			require.NoError(t, New(tab.o).Decode(tab.Encode(nil)))
		}
		tab.Cut(Key{Group: 2, Topic: 1}, 0)
		require.False(t, tab.Started(Key{Group: 2, Topic: 1}))
	}
}
