package lite

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

func make1(t testing.TB, tab *Table, p record.TopicID, name string, ms int64) record.QueueID {
	q, ok := tab.Next(p)
	require.True(t, ok)
	m := Meta(p, q, name, false)
	require.NoError(t, tab.Apply(&m, ms))
	return q
}

func TestNamesGetQueuesThatAreNeverUsedTwice(t *testing.T) {
	tab := New()
	a := make1(t, tab, 7, "a", 10)
	b := make1(t, tab, 7, "b", 11)
	require.Equal(t, FirstQueue, a)
	require.Equal(t, FirstQueue+1, b)
	require.True(t, Is(a))
	require.False(t, Is(4095))
	gone := Meta(7, b, "b", true)
	require.NoError(t, tab.Apply(&gone, 12))
	require.Nil(t, tab.Named(7, "b"))
	require.Equal(t, FirstQueue+2, make1(t, tab, 7, "b", 13), "the queue of a deleted lite topic is not used again")
	require.Equal(t, 2, tab.Count(7))
	require.NoError(t, tab.Sent(7, a, 20))
	require.EqualValues(t, 20, tab.At(7, a).ActiveMS)
	require.NoError(t, tab.Sent(7, a, 15))
	require.EqualValues(t, 20, tab.At(7, a).ActiveMS, "the time of last use does not go back")
	tab.Drop(7)
	require.Zero(t, tab.Len())
}

func TestRecordsThatCannotBeAreRefused(t *testing.T) {
	tab := New()
	make1(t, tab, 1, "a", 0)
	for name, m := range map[string]record.Meta{
		"a second time":      Meta(1, FirstQueue+1, "a", false),
		"a queue left out":   Meta(1, FirstQueue+2, "b", false),
		"a plain queue":      Meta(1, 3, "b", false),
		"no name":            Meta(1, FirstQueue+1, "", false),
		"a long name":        Meta(1, FirstQueue+1, string(make([]byte, NameMax+1)), false),
		"deleted, not there": Meta(1, FirstQueue+1, "b", true),
		"deleted, other":     Meta(1, FirstQueue, "b", true),
		"no parent":          Meta(2, FirstQueue, "b", true),
		"with a value":       {Kind: record.MetaLite, Version: uint64(FirstQueue) + 1, ID: 1, Name: []byte("b"), Value: []byte("{}")},
		"a huge queue":       {Kind: record.MetaLite, Version: 1 << 40, ID: 1, Name: []byte("b")},
	} {
		before := tab.Encode(nil)
		err := tab.Apply(&m, 5)
		require.True(t, mqerr.Is(err, mqerr.Corrupt), name)
		require.Equal(t, before, tab.Encode(nil), name)
	}
	require.True(t, mqerr.Is(tab.Sent(1, FirstQueue+9, 1), mqerr.Corrupt))
}

// TestModel compares a table with a map, through any sequence of records, and with itself decoded.
func TestModel(t *testing.T) {
	type key struct {
		p    record.TopicID
		name string
	}
	type one struct {
		q  record.QueueID
		ms int64
	}
	rapid.Check(t, func(r *rapid.T) {
		tab, model, next := New(), map[key]one{}, map[record.TopicID]record.QueueID{}
		for i := range rapid.IntRange(0, 60).Draw(r, "records") {
			ms := int64(1000 + i)
			k := key{record.TopicID(rapid.IntRange(1, 3).Draw(r, "parent")), fmt.Sprint(rapid.IntRange(0, 6).Draw(r, "name"))}
			have, is := model[k]
			switch rapid.IntRange(0, 8).Draw(r, "what") {
			case 0:
				if !is {
					continue
				}
				m := Meta(k.p, have.q, k.name, true)
				require.NoError(r, tab.Apply(&m, ms))
				delete(model, k)
			case 1:
				tab.Drop(k.p)
				delete(next, k.p)
				for other := range model {
					if other.p == k.p {
						delete(model, other)
					}
				}
			default:
				if !is {
					q := FirstQueue + next[k.p]
					next[k.p]++
					m := Meta(k.p, q, k.name, false)
					require.NoError(r, tab.Apply(&m, ms))
					model[k] = one{q, ms}
					continue
				}
				require.NoError(r, tab.Sent(k.p, have.q, ms))
				model[k] = one{have.q, ms}
			}
		}
		bytes := tab.Encode(nil)
		again := New()
		require.NoError(r, again.Decode(bytes))
		require.Equal(r, bytes, again.Encode(nil))
		for _, got := range []*Table{tab, again} {
			require.Equal(r, len(model), got.Len())
			for k, want := range model {
				c := got.Named(k.p, k.name)
				require.NotNil(r, c)
				require.Equal(r, Topic{Queue: want.q, Name: k.name, ActiveMS: want.ms}, *c)
				require.Same(r, c, got.At(k.p, want.q))
			}
			for p, n := range next {
				q, ok := got.Next(p)
				require.True(r, ok)
				require.Equal(r, FirstQueue+n, q)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	tab := New()
	for i := range 5 {
		make1(f, tab, record.TopicID(1+i%2), fmt.Sprint("n", i), int64(i)*1000)
	}
	f.Add(tab.Encode(nil))
	f.Add(New().Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := New()
		if err := got.Decode(b); err != nil {
			require.True(t, mqerr.Is(err, mqerr.Corrupt))
			return
		}
		again := New()
		bytes := got.Encode(nil)
		require.NoError(t, again.Decode(bytes))
		require.Equal(t, bytes, again.Encode(nil))
	})
}

// TestSize bounds what a lite topic costs in this table.
func TestSize(t *testing.T) {
	const n = 100_000
	heap := func() uint64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	before := heap()
	tab := New()
	for i := range n {
		make1(t, tab, 1, fmt.Sprintf("session-%08d", i), 1)
	}
	each := (heap() - before) / n
	runtime.KeepAlive(tab)
	t.Logf("%d bytes a lite topic in memory, %d in a checkpoint", each, len(tab.Encode(nil))/n)
	require.Less(t, each, uint64(250))
}
