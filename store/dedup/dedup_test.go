package dedup

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

func open(t require.TestingT, fs *memfs.FS, o Options) *Window {
	require.NoError(t, fs.MkdirAll("dedup"))
	o.FS, o.Dir = fs, "dedup"
	return New(o)
}

func save(t require.TestingT, w *Window) []byte {
	b := w.Encode(nil)
	require.NoError(t, w.Sync())
	require.NoError(t, w.Saved())
	return b
}

func newest(w *Window, hash uint64) record.Pos {
	if found := w.Find(hash, nil); len(found) > 0 {
		return found[0]
	}
	return -1
}

// Random adds, checkpoints and restarts against a map of everything: within the window that is in force
// every message is found, at its newest position.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Window: 3 * time.Second, Bytes: 64 << 10}
		fs := memfs.New()
		w := open(t, fs, o)
		type stored struct {
			pos record.Pos
			at  int64
		}
		all := map[uint64]stored{}
		pos, now := record.Pos(0), int64(1000)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 400).Draw(t, "n") {
					h := rapid.Uint64Range(0, 3000).Draw(t, "hash")
					if h%3 == 0 {
						h *= 0x9e3779b97f4a7c15
					}
					pos += 64
					now += int64(h % 3)
					w.Add(h, pos, now)
					all[h] = stored{pos, now}
				}
			},
			"wait": func(t *rapid.T) { now += int64(rapid.IntRange(0, 2000).Draw(t, "ms")) },
			"restart": func(t *rapid.T) {
				b := save(t, w)
				again := open(t, fs, o)
				require.NoError(t, again.Decode(b))
				require.Equal(t, b, again.Encode(nil), "equal windows give equal bytes")
				w = again
			},
			"": func(t *rapid.T) {
				from := now - w.InForce(now).Milliseconds()
				for h, s := range all {
					if s.at > from {
						require.Equal(t, s.pos, newest(w, h))
					}
				}
				require.LessOrEqual(t, w.Bytes(), o.Bytes)
			},
		})
	})
}

func TestWindowMoves(t *testing.T) {
	w := open(t, memfs.New(), Options{Window: 3 * time.Second})
	for i := range int64(10) {
		w.Add(uint64(i), record.Pos(i*64), i*1000)
	}
	require.Equal(t, record.Pos(9*64), newest(w, 9))
	require.Equal(t, record.Pos(6*64), newest(w, 6))
	require.Equal(t, record.Pos(-1), newest(w, 3))
	require.Equal(t, 3*time.Second, w.InForce(9000))
}

// Beyond its memory the window is shorter, and says so.
func TestWindowShortens(t *testing.T) {
	w := open(t, memfs.New(), Options{Window: time.Hour, Bytes: 64 << 10})
	for i := range int64(10_000) {
		w.Add(hashOf(i), record.Pos(i*64), i)
	}
	in := w.InForce(10_000)
	require.Less(t, in, 64<<10/slotBytes*3/4*time.Millisecond, "three quarters of the slots")
	require.Greater(t, in, 4*time.Second)
	require.LessOrEqual(t, w.Bytes(), int64(64<<10))
}

// A position far behind the first one of its generation is found as it was, and beyond what a slot holds there is
// another generation.
func TestFarPositions(t *testing.T) {
	const span = record.Pos(unit * (1<<spanBits - 2)) // the farthest
	fs := memfs.New()
	w := open(t, fs, Options{Window: time.Hour})
	begin := record.Pos(1<<62 + 8)
	at := []record.Pos{begin, begin + 8, begin + 1<<32, begin + span - 8, begin + span, begin + span + 8, begin + span + 1<<37}
	for i, pos := range at {
		w.Add(hashOf(int64(i)), pos, int64(i))
	}
	require.Len(t, w.gens, 2)
	require.Equal(t, at[5], w.gens[1].begin)
	again := open(t, fs, Options{Window: time.Hour})
	require.NoError(t, again.Decode(save(t, w)))
	for i, pos := range at {
		require.Equal(t, []record.Pos{pos}, w.Find(hashOf(int64(i)), nil))
		require.Equal(t, []record.Pos{pos}, again.Find(hashOf(int64(i)), nil))
	}
}

// Of messages with one id and different bodies the newest are remembered.
func TestSameID(t *testing.T) {
	w := open(t, memfs.New(), Options{})
	var want []record.Pos
	for i := range int64(sameMax + 3) {
		w.Add(7, record.Pos(i*64), i)
		if i >= 3 {
			want = slices.Insert(want, 0, record.Pos(i*64))
		}
	}
	require.Equal(t, want, w.Find(7, nil))
}

// TestBytesOfMessage: what a message costs in memory is bounded, whatever the number of them.
func TestBytesOfMessage(t *testing.T) {
	w := open(t, memfs.New(), Options{Window: time.Hour})
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range int64(1_000_000) {
		if w.Add(rng.Uint64(), record.Pos(i*1024), i/1000); i >= 100_000 && i%50_000 == 0 {
			require.LessOrEqual(t, w.Bytes(), 23*(i+1), "after %d messages", i)
		}
	}
	require.LessOrEqual(t, w.Bytes(), int64(17<<20))
	require.Equal(t, time.Hour, w.InForce(1000))
}

// What is lost of the files costs window and nothing else.
func TestLostFiles(t *testing.T) {
	for name, harm := range map[string]func(*memfs.FS, string){
		"removed": func(fs *memfs.FS, name string) { _ = fs.Remove(name) },
		"short": func(fs *memfs.FS, name string) {
			f, _ := fs.Open(name)
			_ = f.Truncate(40)
		},
		"damaged": func(fs *memfs.FS, name string) {
			f, _ := fs.Open(name)
			_, _ = f.WriteAt([]byte{1, 2, 3}, 5)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memfs.New()
			w := open(t, fs, Options{Window: 3 * time.Second})
			for i := range int64(200) {
				w.Add(hashOf(i), record.Pos(i*64), i*10)
			}
			b := save(t, w)
			names, err := fs.List("dedup")
			require.NoError(t, err)
			require.Len(t, names, 2)
			harm(fs, "dedup/"+names[0])
			again := open(t, fs, Options{Window: 3 * time.Second})
			require.NoError(t, again.Decode(b))
			require.Equal(t, 990*time.Millisecond, again.InForce(1990))
			require.Equal(t, record.Pos(199*64), newest(again, hashOf(199)))

			// The log has it still.
			log := func(first int64, h func(int64) uint64) func(record.Pos, func(uint64, record.Pos, int64) bool) error {
				return func(from record.Pos, fn func(uint64, record.Pos, int64) bool) error {
					if int64(from) < first*64 {
						return mqerr.New(mqerr.NotFound, "deleted")
					}
					for i := int64(from) / 64; i < 200 && fn(h(i), record.Pos(i*64), i*10); i++ {
					}
					return nil
				}
			}
			again.Fill(log(1, hashOf))
			require.Equal(t, 990*time.Millisecond, again.InForce(1990), "it was deleted there")
			require.NoError(t, again.Decode(b))
			again.Fill(log(0, func(i int64) uint64 { return hashOf(i + 1) }))
			require.Equal(t, 990*time.Millisecond, again.InForce(1990), "it is another log")
			require.NoError(t, again.Decode(b))
			again.Fill(log(0, hashOf))
			require.Equal(t, 3*time.Second, again.InForce(1990))
			for i := range int64(200) {
				require.Equal(t, record.Pos(i*64), newest(again, hashOf(i)))
			}
			require.Equal(t, b, save(t, again))
			twice := open(t, fs, Options{Window: 3 * time.Second})
			require.NoError(t, twice.Decode(b))
			twice.Fill(nil)
			require.Equal(t, 3*time.Second, twice.InForce(1990), "its file is there again")
			require.Equal(t, record.Pos(0), newest(twice, hashOf(0)))
		})
	}
}

// TestLostBefore: what the log deletes is no part of the window that is in force.
func TestLostBefore(t *testing.T) {
	w := open(t, memfs.New(), Options{Window: 3 * time.Second})
	for i := range int64(40) {
		w.Add(uint64(i), record.Pos(i*64), i*100)
	}
	whole := w.InForce(3900)
	w.LostBefore(record.Pos(0), 1<<40)
	require.Equal(t, whole, w.InForce(3900))
	w.LostBefore(15*64, 1500)
	require.Equal(t, 2400*time.Millisecond, w.InForce(3900))
	require.Equal(t, record.Pos(14*64), newest(w, 14), "it may have been carried forward")
	w.LostBefore(1<<40, 3900)
	require.Zero(t, w.InForce(3900))
	again := open(t, memfs.New(), Options{Window: 3 * time.Second})
	require.NoError(t, again.Decode(w.Encode(nil)))
	require.Zero(t, again.InForce(3900))
}

func TestOff(t *testing.T) {
	w := open(t, memfs.New(), Options{Window: -1})
	w.Add(1, 64, 1)
	require.Empty(t, w.Find(1, nil))
	require.Zero(t, w.InForce(5))
}

// Whatever the bytes are, decoding ends, and is a window or an error.
func FuzzDecode(f *testing.F) {
	fs := memfs.New()
	w := open(f, fs, Options{})
	w.Add(1, 64, 1)
	f.Add(save(f, w))
	f.Fuzz(func(t *testing.T, b []byte) {
		w := open(t, fs, Options{})
		if err := w.Decode(b); err != nil && !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
			t.Fatal(err)
		}
	})
}

// hashOf spreads a number.
func hashOf(i int64) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 }

// A window that is made longer keeps more from then on, and one that is made shorter forgets; both say how far
// they reach.
func TestCover(t *testing.T) {
	fs := memfs.New()
	w := open(t, fs, Options{Window: 3 * time.Second})
	w.Add(1, 64, 1000)
	w.Cover(30*time.Second, 1000)
	w.Add(2, 128, 20_000)
	require.Equal(t, record.Pos(64), newest(w, 1))
	require.Equal(t, 30*time.Second, w.InForce(20_000))
	again := open(t, fs, Options{Window: 3 * time.Second})
	again.Cover(30*time.Second, 20_000)
	require.NoError(t, again.Decode(save(t, w)))
	require.Equal(t, record.Pos(64), newest(again, 1))
	require.Equal(t, 30*time.Second, again.Window())
	w.Cover(0, 20_000)
	w.Add(3, 192, 23_500)
	require.Equal(t, record.Pos(-1), newest(w, 1))
	require.Equal(t, record.Pos(128), newest(w, 2))
	require.Equal(t, 3*time.Second, w.Window())
	w.Cover(time.Minute, 23_500)
	require.Equal(t, time.Minute, w.Window())
	require.Equal(t, 3500*time.Millisecond, w.InForce(23_500), "what is forgotten stays so")
	w.Reset()
	require.Equal(t, 3*time.Second, w.Window())

	off := open(t, memfs.New(), Options{Window: -1})
	off.Add(1, 64, 1000)
	require.Zero(t, off.Own())
	off.Cover(time.Second, 5000)
	require.Zero(t, off.InForce(5000), "it begins")
	off.Add(2, 128, 5500)
	require.Equal(t, 500*time.Millisecond, off.InForce(5500))
	require.Equal(t, record.Pos(128), newest(off, 2))
	require.Equal(t, record.Pos(-1), newest(off, 1))
}
