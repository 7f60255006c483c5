package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is a log in memory.
type log struct {
	records []record.Record
	end     record.Pos
	epoch   record.Epoch
}

func (l *log) add(typ record.Type, body []byte) {
	r := record.Record{Header: record.Header{Type: typ, Pos: l.end, Epoch: l.epoch, Size: uint32(record.Total(len(body)))}, Body: body}
	l.records, l.end = append(l.records, r), r.End()
}

func (l *log) trim(at record.Pos, last bool) {
	t := record.Trim{At: at, Last: last}
	b := make([]byte, record.TrimSize(&t))
	record.PutTrim(b, &t)
	l.add(record.TypeTrim, b)
}

func (l *log) chunk(c *record.Snapshot) {
	b := make([]byte, record.SnapshotSize(c))
	record.PutSnapshot(b, c)
	l.add(record.TypeSnapshot, b)
}

// snapshot writes all chunks, with an ordinary record between them.
func (l *log) snapshot(at record.Pos, sections []checkpoint.Section) {
	for c := range snapshot.Chunks(at, sections, 64) {
		l.chunk(c)
		l.add(record.TypePopAck, []byte{0})
	}
}

func (l *log) scan(from record.Pos, fn func(record.Record) error) error {
	for _, r := range l.records {
		if r.Pos < from {
			continue
		}
		r.Body = bytes.Clone(r.Body)
		if err := fn(r); err != nil {
			return err
		}
		clear(r.Body) // it is valid until fn returns
	}
	return nil
}

func (l *log) find(t require.TestingT, first record.Pos) *snapshot.Found {
	f, err := snapshot.Find(first, l.scan)
	require.NoError(t, err)
	return f
}

func sections(name string) []checkpoint.Section {
	return []checkpoint.Section{
		{Name: "base", Data: []byte(name)},
		{Name: "empty"},
		{Name: "pop", Data: bytes.Repeat([]byte(name), 100), More: [][]byte{[]byte("more"), {}, bytes.Repeat([]byte("of it"), 40)}},
		{Name: "timers", More: [][]byte{[]byte("in"), []byte("pieces")}},
	}
}

// whole are sections as they are read: in one piece each.
func whole(all []checkpoint.Section) []checkpoint.Section {
	var out []checkpoint.Section
	for i := range all {
		out = append(out, checkpoint.Section{Name: all[i].Name, Data: append([]byte{}, all[i].Bytes()...)})
	}
	return out
}

func TestChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []checkpoint.Section
		for i := range rapid.IntRange(1, 4).Draw(t, "sections") {
			s := checkpoint.Section{Name: fmt.Sprintf("view%d", i), Data: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")}
			for range rapid.IntRange(0, 4).Draw(t, "more") {
				s.More = append(s.More, rapid.SliceOfN(rapid.Byte(), 0, 150).Draw(t, "piece"))
			}
			all = append(all, s)
		}
		limit := rapid.IntRange(30, 400).Draw(t, "limit")
		l, total, n := log{}, int64(0), 0
		for i := range all {
			total += all[i].Len()
		}
		for c := range snapshot.Chunks(1<<40, all, limit) {
			require.LessOrEqual(t, record.SnapshotSize(c), limit)
			l.chunk(c)
			n++
		}
		require.LessOrEqual(t, n, len(all)+int(total)/(limit-25), "as few as there may be")
		f := snapshot.NewFinder(0)
		for i, r := range l.records {
			r.Pos += 1 << 41
			found, err := f.Add(r)
			require.NoError(t, err)
			require.Equal(t, i == len(l.records)-1, found != nil)
			if found != nil {
				require.Equal(t, whole(all), found.Sections)
				require.Equal(t, snapshot.Found{At: 1 << 40, From: 1 << 41, End: r.End(), Sections: found.Sections}, *found)
			}
		}
	})
}

// TestFind: what is incomplete, of another epoch, or stands on what is gone does not count.
func TestFind(t *testing.T) {
	l := &log{}
	l.add(record.TypePopAck, []byte{0})
	require.Nil(t, l.find(t, 0))
	a := l.end
	l.trim(40, false)
	l.trim(40, true)
	p1 := l.end
	l.snapshot(p1, sections("one")[:2]) // the power fails here
	l.records = l.records[:len(l.records)-2]
	require.Nil(t, l.find(t, 0))

	l.epoch++
	for c := range snapshot.Chunks(p1, sections("stray"), 64) {
		if c.Chunk > 0 { // as if it went on
			l.chunk(c)
		}
	}
	require.Nil(t, l.find(t, 0), "chunks of two epochs")

	l.trim(a, true)
	p2 := l.end
	l.snapshot(p2, sections("two"))
	found := l.find(t, 0)
	require.NotNil(t, found)
	require.Equal(t, whole(sections("two")), found.Sections)
	require.Equal(t, [2]record.Pos{a, p2}, [2]record.Pos{found.Begin, found.At})
	require.Equal(t, p2, found.Checkpoint().Pos)
	require.NotNil(t, l.find(t, a), "the log was cut there")
	require.Nil(t, l.find(t, p1), "it was cut beyond what the snapshot needs")

	l.trim(p1, true)
	p3 := l.end
	l.snapshot(p3, sections("three"))
	require.Equal(t, p2, l.find(t, 0).At, "the oldest one")
	require.Equal(t, p3, l.find(t, p1).At, "the oldest one whose queues are there")
	require.Equal(t, whole(sections("three")), l.find(t, p1).Sections)
	require.Nil(t, l.find(t, p3), "nothing says where its queues begin")
}

// TestFindIgnores what no engine writes.
func TestFindIgnores(t *testing.T) {
	chunk := func(n uint32, last bool, view string) *record.Snapshot {
		return &record.Snapshot{At: 0, Chunk: n, Last: last, View: []byte(view), Data: []byte("x")}
	}
	for name, chunks := range map[string][]*record.Snapshot{
		"a view twice":       {chunk(0, false, "a"), chunk(1, false, "b"), chunk(2, true, "a")},
		"a chunk missing":    {chunk(0, false, "a"), chunk(2, true, "b")},
		"a chunk twice":      {chunk(0, false, "a"), chunk(1, false, "b"), chunk(1, true, "b")},
		"no beginning":       {chunk(1, true, "a")},
		"another position":   {chunk(0, false, "a"), {At: 8, Chunk: 1, Last: true, View: []byte("b")}},
		"of the future":      {{At: 1 << 30, Last: true, View: []byte("b")}},
		"begun, not gone on": {chunk(0, false, "a"), chunk(0, false, "a"), chunk(2, true, "a")},
	} {
		l := &log{}
		for _, c := range chunks {
			l.chunk(c)
		}
		require.Nil(t, l.find(t, 0), name)
		l.chunk(chunk(0, true, "a"))
		require.NotNil(t, l.find(t, 0), "%s: the next one counts", name)
	}
}

func TestFindErrors(t *testing.T) {
	torn := mqerr.New(mqerr.Corrupt, "torn")
	f, err := snapshot.Find(0, func(record.Pos, func(record.Record) error) error { return torn })
	require.Nil(t, f)
	require.Equal(t, torn, err)
	l := &log{}
	l.snapshot(0, sections("one"))
	f, err = snapshot.Find(0, func(from record.Pos, fn func(record.Record) error) error {
		return errors.Join(l.scan(from, fn), torn)
	})
	require.NoError(t, err, "what lies behind does not matter")
	require.NotNil(t, f)
	l = &log{}
	l.add(record.TypeSnapshot, []byte{1})
	_, err = snapshot.Find(0, l.scan)
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
}

// FuzzFinder feeds records of any content: no panic, and what is found is what its chunks say.
func FuzzFinder(f *testing.F) {
	for c := range snapshot.Chunks(0, sections("f"), 40) {
		b := make([]byte, record.SnapshotSize(c))
		record.PutSnapshot(b, c)
		f.Add(b, b, true)
	}
	f.Fuzz(func(t *testing.T, one, two []byte, trim bool) {
		find := snapshot.NewFinder(0)
		l := &log{}
		if trim {
			l.add(record.TypeTrim, two)
		}
		l.add(record.TypeSnapshot, one)
		l.add(record.TypeSnapshot, two)
		for _, r := range l.records {
			found, err := find.Add(r)
			if err != nil {
				if !mqerr.Is(err, mqerr.Corrupt) {
					t.Fatalf("%v", err)
				}
				continue
			}
			if found != nil && (len(found.Sections) == 0 || found.At > found.From || found.End <= found.From || found.Begin < 0) {
				t.Fatalf("%+v", found)
			}
		}
	})
}
