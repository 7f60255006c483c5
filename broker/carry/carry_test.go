package carry

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMoves compares the table with a map, over random moves and steps.
func TestMoves(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		table, naive := New(), map[record.Pos]Place{}
		end := record.Pos(1000)
		for range 300 {
			from := record.Pos(rng.Int64N(100)) * 8
			p := Place{Pos: end, Size: uint32(40 + rng.IntN(100))}
			require.NoError(t, table.Move(from, p.Pos, p.Size))
			naive[from] = p
			end += record.Pos(rng.Int64N(50)) + 1
			if rng.IntN(20) == 0 {
				d := end - record.Pos(rng.Int64N(500))
				table.Finish(d)
				for from, p := range naive {
					if p.Pos < d {
						delete(naive, from)
					}
				}
				require.GreaterOrEqual(t, table.Begin(), d)
			}
			if rng.IntN(30) == 0 {
				again := New()
				require.NoError(t, again.Decode(table.Encode(nil)), "seed %d", seed)
				require.Equal(t, table.Encode(nil), again.Encode(nil), "seed %d", seed)
				table = again
			}
		}
		require.Equal(t, len(naive), table.Len(), "seed %d", seed)
		for from := record.Pos(0); from < 800; from += 8 {
			p, is := table.At(from)
			want, ok := naive[from]
			require.Equal(t, ok, is, "seed %d, position %d", seed, from)
			require.Equal(t, want, p, "seed %d, position %d", seed, from)
		}
	}
}

func TestHeldAndLost(t *testing.T) {
	table := New()
	k, other := queue.Key{Topic: 3, Queue: 1}, queue.Key{Topic: 2, Queue: 65536}
	entry := queue.Entry{Pos: 80, Size: 96, Time: 1_700_000_000_000, TagHash: 1, GroupHash: 1 << 63}
	require.NoError(t, table.Hold(k, []record.Held{HeldOf(4, &entry), HeldOf(9, &entry)}))
	require.NoError(t, table.Hold(other, []record.Held{HeldOf(0, &entry)}))
	require.Error(t, table.Hold(k, []record.Held{HeldOf(9, &entry), HeldOf(4, &entry)}))
	got, is := table.Held(k, 9)
	require.True(t, is)
	require.Equal(t, entry, got)
	_, is = table.Held(k, 5)
	require.False(t, is)
	require.Equal(t, 3, table.HeldLen())
	require.Equal(t, []queue.Key{other, k}, table.HeldQueues())
	n := 0
	table.EachHeld(func(queue.Key, *record.Held) { n++ })
	require.Equal(t, 3, n)

	table.Lose(Reader{Group: 7, Topic: 3}, 5)
	table.Lose(Reader{Group: 7, Topic: 3}, 2)
	table.Lose(Reader{Group: 8, Topic: 2}, 0)
	require.EqualValues(t, 7, table.Lost(Reader{Group: 7, Topic: 3}))

	again := New()
	require.NoError(t, again.Decode(table.Encode(nil)))
	require.Equal(t, table.Encode(nil), again.Encode(nil))
	require.Equal(t, 3, again.HeldLen())

	require.NoError(t, table.Hold(k, nil))
	_, is = table.Held(k, 9)
	require.False(t, is)
	table.DropQueue(other)
	require.Zero(t, table.HeldLen())
	again.DropTopic(3)
	require.EqualValues(t, 0, again.Lost(Reader{Group: 7, Topic: 3}))
	require.Equal(t, 1, again.HeldLen())
	table.DropGroup(7)
	require.Equal(t, New().Encode(nil), table.Encode(nil))
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	table := New()
	for _, m := range [][3]int64{{-8, 8, 40}, {8, 8, 40}, {16, 8, 40}, {8, 16, 39}} {
		require.Error(t, table.Move(record.Pos(m[0]), record.Pos(m[1]), uint32(m[2])))
	}
	require.NoError(t, table.Move(8, 16, 48))
	require.NoError(t, table.Hold(queue.Key{Topic: 1}, []record.Held{{Offset: 3}}))
	table.Lose(Reader{1, 1}, 1)
	good := table.Encode(nil)
	for n := range good {
		require.Error(t, New().Decode(good[:n]), "%d bytes", n)
	}
	require.Error(t, New().Decode(append(slices.Clip(good), 0)))
}

func FuzzDecode(f *testing.F) {
	table := New()
	_ = table.Move(8, 16, 48)
	_ = table.Move(24, 4096, 80)
	_ = table.Hold(queue.Key{Topic: 1, Queue: 2}, []record.Held{{Offset: 3, Pos: 8, Size: 48, Time: 5}})
	table.Lose(Reader{1, 1}, 9)
	table.Finish(10)
	f.Add(table.Encode(nil))
	f.Add(New().Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		table := New()
		if table.Decode(b) == nil {
			require.Equal(t, b, table.Encode(nil))
		}
	})
}
