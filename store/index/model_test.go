package index

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// fakeLog is a log of messages in memory.
type fakeLog struct {
	damaged record.Pos // of a record that cannot be read, 0 for none
	records []record.Record
	first   record.Pos
	end     record.Pos
	time    int64
}

// move carries a record forward.
func (l *fakeLog) move(in record.Record) record.Record {
	in, err := record.Unwrap(in)
	if err != nil {
		panic(err)
	}
	m := record.Wrap(&in)
	m.Version = record.Version
	b := make([]byte, record.MoveSize(&m))
	record.PutMove(b, &m)
	return l.put(record.TypeMove, b)
}

func (l *fakeLog) add(m *record.Msg) record.Record {
	b := make([]byte, record.MsgSize(m))
	record.PutMsg(b, m)
	return l.put(record.TypeMsg, b)
}

func (l *fakeLog) put(typ record.Type, b []byte) record.Record {
	r := record.Record{Header: record.Header{Type: typ, Version: record.Version, Pos: l.end, Time: l.time, Size: uint32(record.Total(len(b)))}, Body: b}
	l.records = append(l.records, r)
	l.end = r.End()
	return r
}

func (l *fakeLog) read(from record.Pos, fn func(record.Record) error, past func() error) error {
	if from < l.first {
		return mqerr.New(mqerr.NotFound, "position %d was deleted", from)
	}
	for _, r := range l.records {
		if r.Pos < from {
			continue
		}
		if l.damaged == r.Pos && r.Pos > 0 {
			if err := past(); err != nil {
				return err
			}
			continue
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// put adds what a record has to a store, as a broker does.
func put(t require.TestingT, s *Store, r record.Record) {
	hashes, err := OfRecord(nil, &r)
	require.NoError(t, err)
	s.Add(r.Pos, r.Time, hashes)
}

func sysOf(keys ...string) []byte {
	b := []byte{1<<3 | 2, 1, 't', 5 << 3, 7}
	for _, k := range keys {
		b = append(append(b, keysField<<3|2, byte(len(k))), k...)
	}
	return b
}

const topicT record.TopicID = 7

// lookup returns all positions of a key, oldest first, and the gaps.
func lookup(t require.TestingT, s *Store, hash uint64, from, to int64) ([]record.Pos, []Gap) {
	var all []record.Pos
	gaps, err := s.Lookup(hash, from, to, func(found []record.Pos) (bool, error) {
		require.True(t, slices.IsSorted(found))
		if len(all) > 0 {
			require.Less(t, found[len(found)-1], all[0], "newer portions come first")
		}
		all = append(slices.Clone(found), all...)
		return true, nil
	})
	require.NoError(t, err)
	return all, gaps
}

// machine drives a store and a list.
type machine struct {
	fs    *memfs.FS
	log   fakeLog
	s     *Store
	saved []byte // a checkpoint
	upTo  int    // records that are in it
	runs  int
}

func (m *machine) open(t *rapid.T) {
	var err error
	m.s, err = Open(Options{FS: m.fs, Dir: "index", RunEntries: m.runs, Pending: 2, First: func() record.Pos { return m.log.first }})
	require.NoError(t, err)
}

// want are the positions of what a text names, stored in [from, to).
func (m *machine) want(hash uint64, from, to int64) []record.Pos {
	var all []record.Pos
	for _, r := range m.log.records {
		if r.Pos < m.log.first {
			continue
		}
		if hashes, _ := OfRecord(nil, &r); slices.Contains(hashes, hash) && r.Time >= from && (to == 0 || r.Time < to) {
			all = append(all, r.Pos)
		}
	}
	return all
}

// settle works until nothing is left to do.
func (m *machine) settle(t *rapid.T) {
	for n := 0; ; n++ {
		more, err := m.s.Work(m.log.read)
		require.NoError(t, err)
		if !more {
			return
		}
		require.Less(t, n, 10_000)
	}
}

// check compares a look-up with the list: what is found is what there is, or lies in a gap.
func (m *machine) check(t *rapid.T) {
	hash := Hash(topicT, Key, fmt.Appendf(nil, "k%d", rapid.IntRange(0, 5).Draw(t, "key")))
	from, to := int64(0), int64(0)
	if rapid.Bool().Draw(t, "bounded") {
		from = rapid.Int64Range(0, m.log.time+1).Draw(t, "from")
		to = rapid.Int64Range(from, m.log.time+2).Draw(t, "to")
	}
	found, gaps := lookup(t, m.s, hash, from, to)
	at := func(pos record.Pos) int64 {
		i := slices.IndexFunc(m.log.records, func(r record.Record) bool { return r.Pos == pos })
		require.GreaterOrEqual(t, i, 0, "a position that the log does not have: %d", pos)
		return m.log.records[i].Time
	}
	found = slices.DeleteFunc(found, func(p record.Pos) bool { return at(p) < from || to > 0 && at(p) >= to })
	want := slices.DeleteFunc(m.want(hash, from, to), func(p record.Pos) bool {
		return !slices.Contains(found, p) && slices.ContainsFunc(gaps, func(g Gap) bool { return g.FromMS <= at(p) && at(p) <= g.ToMS })
	})
	require.Equal(t, len(want), len(found), "want %v, found %v, gaps %v", want, found, gaps)
	for i := range want {
		require.Equal(t, want[i], found[i])
	}
}

// TestModel: whatever happens to the files and the process, a look-up finds what is in the log or says which
// times it does not know; after the work is done it knows all; and a rebuilt index has equal bytes.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{fs: memfs.New(), runs: rapid.IntRange(1, 1000).Draw(t, "run entries")}
		m.log.time = 1
		m.open(t)
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					m.log.time += rapid.Int64Range(0, 2).Draw(t, "ms")
					var keys []string
					for range rapid.IntRange(0, 3).Draw(t, "keys") {
						keys = append(keys, fmt.Sprintf("k%d", rapid.IntRange(0, 5).Draw(t, "key")))
					}
					put(t, m.s, m.log.add(&record.Msg{Topic: topicT, Type: record.MsgNormal, ID: fmt.Appendf(nil, "id%d", len(m.log.records)), Sys: sysOf(keys...)}))
				}
			},
			"work":  func(t *rapid.T) { _, err := m.s.Work(m.log.read); require.NoError(t, err) },
			"check": m.check,
			"save":  func(*rapid.T) { m.saved, m.upTo = m.s.Encode(nil), len(m.log.records) },
			"damage": func(t *rapid.T) {
				names, err := m.fs.List("index")
				require.NoError(t, err)
				if len(names) == 0 {
					return
				}
				name := m.s.path(rapid.SampledFrom(names).Draw(t, "file"))
				if rapid.Bool().Draw(t, "remove") {
					require.NoError(t, m.fs.Remove(name))
					return
				}
				b, err := vfs.ReadFile(m.fs, name)
				require.NoError(t, err)
				f, err := m.fs.Open(name)
				require.NoError(t, err)
				at := rapid.IntRange(0, len(b)-1).Draw(t, "byte")
				_, err = f.WriteAt([]byte{^b[at]}, int64(at))
				require.NoError(t, errors.Join(err, f.Close()))
			},
			"restart": func(t *rapid.T) {
				before := m.s.Encode(nil)
				m.open(t)
				from := 0
				if m.saved != nil && (m.log.first > 0 || rapid.Bool().Draw(t, "from checkpoint")) {
					require.NoError(t, m.s.Decode(m.saved))
					from = m.upTo
				}
				for _, r := range m.log.records[from:] {
					put(t, m.s, r)
				}
				require.Equal(t, before, m.s.Encode(nil))
			},
			"move": func(t *rapid.T) {
				if len(m.log.records) > 0 {
					put(t, m.s, m.log.move(rapid.SampledFrom(m.log.records).Draw(t, "record")))
				}
			},
			"delete": func(t *rapid.T) {
				if len(m.log.records) == 0 {
					return
				}
				first := rapid.SampledFrom(m.log.records).Draw(t, "first").Pos
				if first <= m.log.first {
					return
				}
				m.s.DropBefore(first)
				m.saved, m.upTo = m.s.Encode(nil), len(m.log.records)
				m.log.first = first
			},
			"lost tail": func(t *rapid.T) {
				n := rapid.IntRange(m.upTo, len(m.log.records)).Draw(t, "left")
				m.log.records = m.log.records[:n]
				if m.log.end = 0; n > 0 {
					m.log.end = m.log.records[n-1].End()
				}
				m.fs = m.fs.Crash(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "crash"), 1)), 0.5)
				m.open(t)
				if m.saved != nil {
					require.NoError(t, m.s.Decode(m.saved))
				}
				for _, r := range m.log.records[m.upTo:] {
					put(t, m.s, r)
				}
			},
			"settle": func(t *rapid.T) {
				m.settle(t)
				for k := range 6 { // finds damage
					lookup(t, m.s, Hash(topicT, Key, fmt.Appendf(nil, "k%d", k)), 0, 0)
				}
				m.settle(t)
				for k := range 6 {
					hash := Hash(topicT, Key, fmt.Appendf(nil, "k%d", k))
					found, gaps := lookup(t, m.s, hash, 0, 0)
					require.Empty(t, gaps)
					require.Equal(t, m.want(hash, 0, 0), found)
				}
				require.Zero(t, m.s.Stats().Missing)
			},
		})
	})
}

// TestPowerCut: power goes at each operation of writing a run in turn. The next start finds the file whole, or
// takes its part of the log.
//
//fault:power the power goes at each operation of writing a file of the index => the next start finds it whole, or reads its part of the log again
func TestPowerCut(t *testing.T) {
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	for cut := 1; ; cut++ {
		m := &machine{fs: memfs.New()}
		o := Options{FS: m.fs, Dir: "index", RunEntries: 50}
		s, err := Open(o)
		require.NoError(t, err)
		for i := range 200 {
			m.log.time++
			put(t, s, m.log.add(&record.Msg{Topic: topicT, Type: record.MsgNormal, ID: fmt.Appendf(nil, "id%d", i), Sys: sysOf(fmt.Sprintf("k%d", i%10))}))
		}
		saved := s.Encode(nil)
		m.fs.CutPower(cut)
		for more := true; more && err == nil; {
			more, err = s.Work(m.log.read)
		}
		m.fs.CutPower(0)
		done := err == nil
		for _, keep := range []float64{0, 0.5, 1} {
			o.FS = m.fs.Crash(rng, keep)
			s, err = Open(o)
			require.NoError(t, err)
			require.NoError(t, s.Decode(saved))
			hash := Hash(topicT, Key, []byte("k3"))
			found, gaps := lookup(t, s, hash, 0, 0)
			require.True(t, len(found) == 20 || len(gaps) > 0)
			for more := true; more; {
				more, err = s.Work(m.log.read)
				require.NoError(t, err)
			}
			found, gaps = lookup(t, s, hash, 0, 0)
			require.Empty(t, gaps)
			require.Equal(t, m.want(hash, 0, 0), found)
			require.True(t, bytes.Equal(saved, s.Encode(nil)))
			names, err := o.FS.List("index")
			require.NoError(t, err)
			require.Len(t, names, len(s.runs), "nothing else is left")
		}
		if done {
			require.Greater(t, cut, 20)
			return
		}
	}
}

// TestStaleFile: the tail of the log was lost and written anew, with other keys at the same positions and
// times. The file of before is not taken for that of now.
//
//fault:power the log lost its tail and was written anew, with other keys at the same positions => the index of before is not taken for that of now
func TestStaleFile(t *testing.T) {
	o := Options{FS: memfs.New(), Dir: "index", RunEntries: 50}
	fill := func(key string) (*Store, *machine) {
		s, err := Open(o)
		require.NoError(t, err)
		m := &machine{}
		for i := range 100 {
			m.log.time++
			put(t, s, m.log.add(&record.Msg{Topic: topicT, Type: record.MsgNormal, ID: fmt.Appendf(nil, "id%02d", i), Sys: sysOf(key)}))
		}
		for more := true; more; {
			more, err = s.Work(m.log.read)
			require.NoError(t, err)
		}
		return s, m
	}
	fill("old")
	s, m := fill("new")
	require.Zero(t, s.Stats().Adopted)
	found, gaps := lookup(t, s, Hash(topicT, Key, []byte("new")), 0, 0)
	require.Empty(t, gaps)
	require.Equal(t, m.want(Hash(topicT, Key, []byte("new")), 0, 0), found)
	found, _ = lookup(t, s, Hash(topicT, Key, []byte("old")), 0, 0)
	require.Empty(t, found)
	s, _ = fill("new")
	require.EqualValues(t, 3, s.Stats().Adopted)
}

// TestPartialRun: the file of a run is lost when the log has deleted a part of what it is of. It is rebuilt from
// the rest, once; a start does that again. What cannot be read at all is lost, and said.
func TestPartialRun(t *testing.T) {
	m := &machine{fs: memfs.New(), runs: 20}
	open := func() *Store {
		s, err := Open(Options{FS: m.fs, Dir: "index", RunEntries: m.runs, First: func() record.Pos { return m.log.first }})
		require.NoError(t, err)
		return s
	}
	work := func(s *Store, read Reader) (n int) {
		for more := true; more; n++ {
			var err error
			more, err = s.Work(read)
			require.NoError(t, err)
			require.Less(t, n, 100)
		}
		return n - 1
	}
	s := open()
	for i := range 30 { // 3 runs
		m.log.time++
		put(t, s, m.log.add(&record.Msg{Topic: topicT, Type: record.MsgNormal, ID: fmt.Appendf(nil, "id%d", i), Sys: sysOf("k")}))
	}
	hash := Hash(topicT, Key, []byte("k"))
	require.Equal(t, 2, work(s, m.log.read))
	m.log.first = m.log.records[5].Pos
	s.DropBefore(m.log.first)
	saved := s.Encode(nil)
	found, gaps := lookup(t, s, hash, 0, 0)
	require.Empty(t, gaps)
	require.Equal(t, m.want(hash, 0, 0), found, "what is deleted is not found, the file stays")

	require.NoError(t, m.fs.Remove(s.path(fileName(0))))
	_, gaps = lookup(t, s, hash, 0, 0)
	require.Equal(t, []Gap{{FromMS: 1, ToMS: 10}}, gaps)
	for range 2 {
		require.Equal(t, 1, work(s, m.log.read))
		require.Equal(t, 1, s.Stats().Partial)
		require.EqualValues(t, 50, s.Stats().Entries)
		found, gaps = lookup(t, s, hash, 0, 0)
		require.Empty(t, gaps)
		require.Equal(t, m.want(hash, 0, 0), found)
		require.Equal(t, saved, s.Encode(nil), "what a checkpoint says depends on the log alone")
		require.Zero(t, work(s, m.log.read), "it is well")
		s = open()
		require.NoError(t, s.Decode(saved))
		_, gaps = lookup(t, s, hash, 0, 0)
		require.Equal(t, []Gap{{FromMS: 1, ToMS: 10}}, gaps, "it is not the file of the whole run")
	}
	require.Equal(t, 1, work(s, func(record.Pos, func(record.Record) error, func() error) error {
		return mqerr.New(mqerr.Corrupt, "damaged")
	}))
	_, gaps = lookup(t, s, hash, 0, 0)
	require.Equal(t, []Gap{{FromMS: 1, ToMS: 10, Lost: true}}, gaps)
	require.Zero(t, work(s, m.log.read), "it is not tried for ever")
	s.DropBefore(m.log.records[10].Pos)
	_, gaps = lookup(t, s, hash, 0, 0)
	require.Empty(t, gaps)
}

// TestHoledRun: a run is rebuilt without the messages that are damaged, and a look-up says that there are such.
func TestHoledRun(t *testing.T) {
	m := &machine{fs: memfs.New(), runs: 20}
	s, err := Open(Options{FS: m.fs, Dir: "index", RunEntries: m.runs, First: func() record.Pos { return 0 }})
	require.NoError(t, err)
	for i := range 20 { // 2 runs
		m.log.time++
		put(t, s, m.log.add(&record.Msg{Topic: topicT, Type: record.MsgNormal, ID: fmt.Appendf(nil, "id%d", i), Sys: sysOf("k")}))
	}
	work := func() {
		for more := true; more; {
			more, err = s.Work(m.log.read)
			require.NoError(t, err)
		}
	}
	work()
	hash := Hash(topicT, Key, []byte("k"))
	for _, bad := range []int{1, 4, 9} { // the first one tells the name of the file
		m.log.damaged = 0
		want := m.want(hash, 0, 0)
		m.log.damaged = m.log.records[bad].Pos
		at := slices.Index(want, m.log.damaged)
		require.NoError(t, m.fs.Remove(s.path(fileName(0))))
		_, gaps := lookup(t, s, hash, 0, 0)
		require.Equal(t, []Gap{{FromMS: 1, ToMS: 10}}, gaps)
		work()
		found, gaps := lookup(t, s, hash, 0, 0)
		require.Equal(t, []Gap{{FromMS: 1, ToMS: 10, Lost: true}}, gaps)
		require.Equal(t, slices.Delete(slices.Clone(want), at, at+1), found)
		work()
		require.Equal(t, 1, s.Stats().Partial)
	}
}
