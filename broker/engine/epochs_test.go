package engine

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// spansOf reads where epochs begin from the log itself, all its records and Pads.
func spansOf(t *testing.T, b *bench) []replica.Span {
	t.Helper()
	st := b.openStore()
	defer st.Close()
	_, err := st.Log().Recover(st.Log().First(), func(record.Record) error { return nil })
	require.NoError(t, err)
	x := replica.New(st.Log().First())
	for r := st.Log().Chunks(st.Log().First()); r.Pos() < st.Log().Written(); {
		c, err := r.Next(st.Log().Written(), 1)
		require.NoError(t, err)
		require.NoError(t, x.Append(c.Epoch, c.Start, c.End))
	}
	return x.Spans(nil)
}

// fillSegment sends messages until so many bytes are left in the log's file, a multiple of 8 from 40 on.
func (b *bench) fillSegment(left int) {
	b.t.Helper()
	room := func() int { return 1<<20 - int(b.store.Log().Written())%(1<<20) }
	before := room()
	b.mustSend(topicSync, string(make([]byte, 64)))
	size := before - room() - 64 // of a message beside its body
	for room() > 500_000 {
		b.mustSend(topicSync, string(make([]byte, 200_000)))
	}
	b.mustSend(topicSync, string(make([]byte, room()-left-size)))
	require.Equal(b.t, left, room())
}

// TestWhereEpochsBegin: where epochs begin is known from a checkpoint and the log behind it, from the log alone, and for a
// standby that has applied nothing, and it is what the headers of the log say, Pads included.
func TestWhereEpochsBegin(t *testing.T) {
	for _, clean := range []bool{true, false} {
		b := newBench(t, Options{})
		b.mustOpen()
		b.define()
		for i := range 12 { // each start begins an epoch; some of their records need a Pad before them
			if i%3 == 0 {
				b.fillSegment(64)
			} else {
				b.mustSend(topicSync, "x")
			}
			if clean && i == 6 {
				_, err := b.engine.Close()
				require.NoError(t, err)
				require.NoError(t, b.store.Close())
				b.engine = nil
				b.mustOpen()
				continue
			}
			b.again()
		}
		b.mustSend(topicSync, "last")
		b.kill()
		b.fs.(*memfs.FS).Restart()
		want := spansOf(t, b)
		require.GreaterOrEqual(t, len(want), 12)
		require.True(t, slices.ContainsFunc(want, func(s replica.Span) bool { return s.Start%(1<<20) == 1<<20-64 }), "none begins with a Pad: %v", want)
		for _, standby := range []bool{false, true} {
			st := b.openStore()
			e, err := Open(Options{Store: st, Clock: b.clock, Standby: standby})
			require.NoError(t, err)
			x, err := e.Epochs()
			require.NoError(t, err)
			require.Equal(t, want, x.Spans(nil), "standby %v", standby)
			require.NoError(t, x.Check())
			require.NoError(t, st.Close())
			b.fs.(*memfs.FS).Restart()
		}
	}
}

func FuzzEpochs(f *testing.F) {
	x := epochs{began: []begun{{1, 0}, {4, 800}, {9, 1 << 40}}}
	f.Add(x.encode())
	f.Add([]byte{2, 1, 5, 1, 6})
	f.Fuzz(func(t *testing.T, b []byte) {
		var x epochs
		if x.decode(b) != nil {
			require.Empty(t, x.began)
			return
		}
		var again epochs
		require.NoError(t, again.decode(x.encode()))
		require.Equal(t, x.began, again.began)
		for i := 1; i < len(x.began); i++ {
			require.Less(t, x.began[i-1].epoch, x.began[i].epoch)
			require.Less(t, x.began[i-1].at, x.began[i].at)
		}
	})
}
