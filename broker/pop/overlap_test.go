package pop

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOverlap: locks of one queue share no message, and none that is handed out.
func TestOverlap(t *testing.T) {
	tab := New(Options{})
	q := tab.newQueue(Key{Group: 1, Topic: 1})
	q.next = 1000
	tab.setOrdered(q)
	lock := func(hash uint64, spans ...span) uint32 {
		id := tab.lockOf(q, hash)
		for _, s := range spans {
			tab.pass(q, id, s)
		}
		return id
	}
	a, b, none := lock(1, span{0, 5}, span{10, 1}, span{20, 100}), lock(2, span{5, 2}, span{11, 9}), lock(3)
	o := tab.overlapOf([]uint32{a, b, none})
	for off, want := range map[int64]bool{0: true, 4: true, 6: true, 7: false, 9: false, 10: true, 119: true, 120: false} {
		require.Equal(t, want, tab.overlapOf([]uint32{a, b, none}).has(off), off)
	}
	for _, off := range []int64{3, 7, 15, 500} {
		require.Equal(t, off == 3 || off == 15, o.has(off), off)
	}
	require.True(t, o.clean())
	require.False(t, tab.overlapOf([]uint32{a, b, lock(4, span{119, 1})}).clean())
	require.False(t, tab.overlapOf([]uint32{a, lock(5, span{2, 1})}).clean())
	require.True(t, tab.overlapOf(nil).clean())
}
