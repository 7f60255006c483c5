package index

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

func sample(t testing.TB) *Store {
	s, err := Open(Options{FS: memfs.New(), Dir: "index", RunEntries: 3, Pending: 100})
	require.NoError(t, err)
	for i := range 10 {
		s.Add(record.Pos(i*64), int64(100+i/2), []uint64{uint64(i), 99})
	}
	return s
}

// FuzzSection: any bytes are refused or are what they decode to encodes to.
func FuzzSection(f *testing.F) {
	f.Add(sample(f).Encode(nil))
	f.Add([]byte{0, 0})
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Open(Options{FS: memfs.New(), Dir: "index", RunEntries: 3})
		require.NoError(t, err)
		if err := s.Decode(b); err != nil {
			require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
			return
		}
		require.Equal(t, b, s.Encode(nil))
	})
}

// FuzzFile: any bytes as the file of a run are refused, or are the run's; a look-up in them never invents
// a hash.
func FuzzFile(f *testing.F) {
	var sp span
	var entries []entry
	for i := range 700 {
		e := entry{hash: uint64(i % 90), pos: record.Pos(i * 8)}
		entries = append(entries, e)
		sp.add(e.hash, e.pos, int64(i))
	}
	good := encodeFile(&sp, slices.Clone(entries))
	f.Add(good, uint16(0))
	f.Add(good[:100], uint16(3))
	f.Add(good[:headBytes], uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, hash uint16) {
		err := sp.check(b)
		require.Equal(t, err == nil, bytes.Equal(b, good))
		found, err := sp.find(bytes.NewReader(b), uint64(hash))
		if err != nil {
			require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
			return
		}
		for _, p := range found {
			require.Contains(t, entries, entry{uint64(hash), p})
		}
	})
}

// FuzzKeys: any bytes for system properties, and the keys of good ones are found.
func FuzzKeys(f *testing.F) {
	f.Add([]byte{keysField<<3 | 2, 1, 'a'}, []byte("x"))
	f.Add([]byte{0xff, 0xff}, []byte{})
	f.Fuzz(func(t *testing.T, sys, key []byte) {
		for range Keys(sys) {
		}
		if len(key) > 100 {
			return
		}
		var all [][]byte
		for k := range Keys(sysOf("first", string(key))) {
			all = append(all, k)
		}
		require.Equal(t, [][]byte{[]byte("first"), key}, all)
	})
}

// TestHashes: what a message is found by.
func TestHashes(t *testing.T) {
	m := record.Msg{Topic: topicT, ID: []byte("id"), Sys: sysOf("a", "", "b")}
	require.Equal(t, []uint64{Hash(topicT, ID, []byte("id")), Hash(topicT, Key, []byte("a")), Hash(topicT, Key, []byte("b"))}, Hashes(nil, &m))
	require.NotEqual(t, Hash(topicT, ID, []byte("x")), Hash(topicT, Key, []byte("x")))
	require.NotEqual(t, Hash(topicT, ID, []byte("x")), Hash(topicT+1, ID, []byte("x")))
	many := make([]string, 2*KeysMax)
	for i := range many {
		many[i] = string(rune('a' + i%26))
	}
	m.Sys = sysOf(many...)
	require.Len(t, Hashes(nil, &m), 1+KeysMax)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		var dst [300]uint64
		Hashes(dst[:0], &m)
	}))
}

// TestDropBefore: runs whose messages the log has given up go, with their files.
func TestDropBefore(t *testing.T) {
	s := sample(t)
	for more := true; more; {
		var err error
		more, err = s.Work(nil)
		require.NoError(t, err)
	}
	before := s.Stats()
	s.DropBefore(5 * 64)
	for more := true; more; {
		var err error
		more, err = s.Work(nil)
		require.NoError(t, err)
	}
	require.Less(t, s.Stats().Runs, before.Runs)
	names, err := s.o.FS.List("index")
	require.NoError(t, err)
	require.Len(t, names, s.Stats().Runs)
	found, gaps := lookup(t, s, 99, 0, 0)
	require.Empty(t, gaps)
	require.Equal(t, record.Pos(5*64), found[0])
}

func BenchmarkAdd(b *testing.B) {
	s, err := Open(Options{FS: memfs.New(), Dir: "index"})
	require.NoError(b, err)
	m := record.Msg{Topic: topicT, ID: []byte("01A5B2C3D4E5F60718293A4B5C6D7E8F90"), Sys: sysOf("order-1234567")}
	var hashes []uint64
	b.ReportAllocs()
	for i := range b.N {
		hashes = Hashes(hashes[:0], &m)
		s.Add(record.Pos(i*64), int64(i), hashes)
	}
}
