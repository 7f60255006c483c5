package queue

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// step is one change of the queues, as a record of the log would cause it.
type step struct {
	k      Key
	off    record.QueueOffset
	drop   bool // of the topic
	one    bool // DropQueue
	before bool // DropBefore off
}

// world is a store with the log it is a view of, and a plain model of its content.
type world struct {
	t     *rapid.T
	fs    *memfs.FS
	s     *Store
	log   []step
	model map[Key][2]record.QueueOffset // bounds
	saved []saved                       // the last two checkpoints, oldest first
}

type saved struct {
	dir []byte
	at  int // in log
}

func (w *world) apply(s step) {
	switch {
	case s.drop:
		w.s.Drop(s.k.Topic)
	case s.one:
		w.s.DropQueue(s.k)
	case s.before:
		w.s.DropBefore(s.k, s.off)
	default:
		require.NoError(w.t, w.s.Append(s.k, s.off, entryAt(s.k, s.off)))
	}
	w.expect(s)
}

// expect applies a step to the model only.
func (w *world) expect(s step) {
	b := w.model[s.k]
	switch {
	case s.drop:
		maps.DeleteFunc(w.model, func(k Key, _ [2]record.QueueOffset) bool { return k.Topic == s.k.Topic })
	case s.one:
		delete(w.model, s.k)
	case s.before:
		if s.off > b[0] && b[1] > 0 {
			w.model[s.k] = [2]record.QueueOffset{min(s.off, b[1]), b[1]}
		}
	default:
		w.model[s.k] = [2]record.QueueOffset{b[0], s.off + 1}
	}
}

func (w *world) do(s step) {
	w.log = append(w.log, s)
	w.apply(s)
}

func (w *world) check() {
	require.Len(w.t, w.model, w.s.Stats().Queues)
	for k, b := range w.model {
		requireQueue(w.t, w.s, k, b[0], b[1])
	}
}

func (w *world) open() {
	o := small(w.fs)
	o.TailBytes = 12 << 10
	s, err := Open(o)
	require.NoError(w.t, err)
	w.s = s
}

// recover does what a start does: newest checkpoint, then the log behind it; without a checkpoint
// everything is built anew.
func (w *world) recover() {
	w.open()
	w.model = map[Key][2]record.QueueOffset{}
	from := 0
	if n := len(w.saved); n > 0 {
		require.NoError(w.t, w.s.Decode(w.saved[n-1].dir))
		from = w.saved[n-1].at
	} else {
		w.s.Reset()
	}
	for _, s := range w.log[:from] {
		w.expect(s)
	}
	w.check()
	for _, s := range w.log[from:] {
		w.apply(s)
	}
	w.check()
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, fs: memfs.New(), model: map[Key][2]record.QueueOffset{}}
		w.open()
		key := rapid.Custom(func(t *rapid.T) Key {
			return Key{record.TopicID(rapid.IntRange(1, 3).Draw(t, "topic")), record.QueueID(rapid.IntRange(0, 2).Draw(t, "queue"))}
		})
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				k := key.Draw(t, "key")
				for range rapid.IntRange(1, 250).Draw(t, "n") {
					w.do(step{k: k, off: w.model[k][1]})
				}
			},
			"spread": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					k := key.Draw(t, "key")
					w.do(step{k: k, off: w.model[k][1]})
				}
			},
			"drop": func(t *rapid.T) {
				w.do(step{k: key.Draw(t, "key"), drop: true})
			},
			"dropQueue": func(t *rapid.T) {
				w.do(step{k: key.Draw(t, "key"), one: true})
			},
			"dropBefore": func(t *rapid.T) {
				k := key.Draw(t, "key")
				w.do(step{k: k, before: true, off: record.QueueOffset(rapid.Int64Range(0, int64(w.model[k][1])+1).Draw(t, "off"))})
			},
			"checkpoint": func(t *rapid.T) {
				dir, err := w.s.Encode(nil)
				require.NoError(t, err)
				at := len(w.log)
				if rapid.Bool().Draw(t, "append before sync") {
					k := key.Draw(t, "key")
					w.do(step{k: k, off: w.model[k][1]})
				}
				require.NoError(t, w.s.Sync())
				if rapid.IntRange(0, 3).Draw(t, "lost") == 0 {
					return // the process ended before the checkpoint was saved
				}
				w.saved = append(w.saved, saved{slices.Clone(dir), at})
				w.saved = w.saved[max(0, len(w.saved)-2):]
				require.NoError(t, w.s.Saved())
			},
			"crash": func(t *rapid.T) {
				seed := rapid.Uint64().Draw(t, "seed")
				keep := rapid.SampledFrom([]float64{0, 0.3, 0.7, 1}).Draw(t, "keep")
				w.fs = w.fs.Crash(rand.New(rand.NewPCG(seed, 0)), keep)
				if len(w.saved) == 2 && rapid.IntRange(0, 4).Draw(t, "damaged") == 0 {
					w.saved = w.saved[:1]
				}
				w.recover()
			},
			"late": func(t *rapid.T) {
				k := key.Draw(t, "key")
				off := record.QueueOffset(rapid.Int64Range(0, int64(w.model[k][1])+1).Draw(t, "from"))
				requireLate(t, w.s, k, off, off+record.QueueOffset(rapid.IntRange(0, 500).Draw(t, "n")), entryAt(k, off+record.QueueOffset(rapid.IntRange(-200, 200).Draw(t, "pos"))).Pos)
			},
			"rebuild": func(t *rapid.T) {
				again := rebuilt(t, w.s)
				for k, b := range w.model {
					requireQueue(t, again, k, b[0], b[1])
				}
			},
			"reset": func(t *rapid.T) {
				w.saved = nil
				w.s.Reset()
				w.model = map[Key][2]record.QueueOffset{}
				for _, s := range w.log {
					w.apply(s)
				}
			},
			"": func(*rapid.T) { w.check() },
		})
	})
}

func FuzzDecode(f *testing.F) {
	fs := memfs.New()
	s := openStore(f, small(fs))
	f.Add([]byte{})
	f.Add(checkpoint(f, s))
	fill(f, s, Key{1, 0}, 350)
	fill(f, s, Key{1, 2}, 3)
	f.Add(checkpoint(f, s))
	s.DropBefore(Key{1, 0}, 250)
	fill(f, s, Key{70000, 7}, 102)
	valid := checkpoint(f, s)
	f.Add(valid)
	f.Add(versionOne(s))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := openStore(t, small(fs))
		defer s.Close()
		if err := s.Decode(b); err != nil {
			return
		}
		again, err := s.Encode(nil)
		require.NoError(t, err)
		require.NoError(t, s.Decode(again), "what was accepted can be written and read again")
		twice, err := s.Encode(nil)
		require.NoError(t, err)
		require.Equal(t, again, twice)
		for k, q := range s.queues { // any offset: an error or an entry, no panic
			for _, off := range []record.QueueOffset{q.min, q.max - 1, q.max} {
				_, _ = s.At(k, off)
			}
			_, _ = s.SeekTime(k, 1)
			_ = s.Late(k, q.min, min(q.max, q.min+1000), 1<<40, func(record.QueueOffset, Entry) error { return nil })
		}
	})
}

func FuzzFileHead(f *testing.F) {
	h := fileHead{number: 3, perFile: 9}
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < fileHeadSize {
			return
		}
		if h, err := decodeFileHead(b, 3); err == nil {
			require.Equal(t, b[:6], h.encode()[:6])
		}
	})
}

func FuzzExtent(f *testing.F) {
	b := make([]byte, ExtentBytes)
	h := extentHead{key: Key{1, 2}, first: 101, count: 3}
	h.put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < ExtentBytes {
			return
		}
		want := extentHead{key: Key{1, 2}, first: 101, count: ExtentEntries}
		_ = want.check(b)
		want.count = 3
		_ = want.check(b)
	})
}
