package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

const dir = "checkpoint"

func newFS(t testing.TB) *memfs.FS {
	fs := memfs.New()
	require.NoError(t, fs.MkdirAll(dir))
	return fs
}

// sample is a checkpoint whose sections follow from its position.
func sample(pos record.Pos) Checkpoint {
	return Checkpoint{Pos: pos, Sections: []Section{
		{Name: "base", Data: []byte{1, 2, 3, byte(pos)}},
		{Name: "empty", Data: []byte{}},
		{Name: strings.Repeat("n", nameMax), Data: bytes.Repeat([]byte{byte(pos / 7)}, 3000)},
	}}
}

func TestSaveAndLoad(t *testing.T) {
	fs := newFS(t)
	c, damaged, err := Load(fs, dir, nil)
	require.NoError(t, err)
	require.Nil(t, c)
	require.Empty(t, damaged)
	c, _, err = Load(fs, "nowhere", nil)
	require.NoError(t, err)
	require.Nil(t, c)

	for _, pos := range []record.Pos{0, 40, 40, 1 << 40, 1<<40 + 8} {
		want := sample(pos)
		require.NoError(t, Save(fs, dir, want))
		got, damaged, err := Load(fs, dir, nil)
		require.NoError(t, err)
		require.Empty(t, damaged)
		require.Equal(t, &want, got)
		data, err := got.Section("base")
		require.NoError(t, err)
		require.Equal(t, byte(pos), data[3])
		_, err = got.Section("none")
		require.True(t, mqerr.Is(err, mqerr.Corrupt))
	}
	names, err := fs.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"00000000001099511627776.ck"[3:], Name(1<<40 + 8)}, names)
}

func TestSaveRefusesBadNames(t *testing.T) {
	for _, names := range [][]string{{""}, {"a", "a"}, {strings.Repeat("x", 256)}} {
		c := Checkpoint{}
		for _, n := range names {
			c.Sections = append(c.Sections, Section{Name: n})
		}
		require.True(t, mqerr.Is(Save(newFS(t), dir, c), mqerr.Invalid))
	}
}

func TestSaveRemovesLaterOnesAndLeftovers(t *testing.T) {
	fs := newFS(t)
	for _, pos := range []record.Pos{100, 200} {
		require.NoError(t, Save(fs, dir, sample(pos)))
	}
	require.NoError(t, vfs.ReplaceFile(fs, dir+"/"+Name(300)+vfs.TempSuffix, []byte("cut off")))
	require.NoError(t, vfs.ReplaceFile(fs, dir+"/README", []byte("not ours")))
	require.NoError(t, Save(fs, dir, sample(150)))
	names, err := fs.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{Name(100), Name(150), "README"}, names)
}

//fault:damage a checkpoint is damaged => it is not taken
func TestDamagedOneIsLeftAside(t *testing.T) {
	whole := sample(200)
	content := whole.Encode()
	for i := range content {
		fs := newFS(t)
		require.NoError(t, Save(fs, dir, sample(100)))
		bad := bytes.Clone(content)
		bad[i] ^= 0x40
		require.NoError(t, vfs.ReplaceFile(fs, dir+"/"+Name(200), bad))
		c, damaged, err := Load(fs, dir, nil)
		require.NoError(t, err, "byte %d", i)
		require.Equal(t, record.Pos(100), c.Pos, "byte %d", i)
		require.Len(t, damaged, 1)
		require.Equal(t, Name(200), damaged[0].Name)
		require.True(t, mqerr.Is(damaged[0].Err, mqerr.Corrupt), "%v", damaged[0].Err)
	}
	for _, n := range []int{0, 1, headBytes, len(content) - 1} {
		_, err := Decode(content[:n])
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "cut at %d: %v", n, err)
	}
	_, err := Decode(append(content, 0))
	require.True(t, mqerr.Is(err, mqerr.Corrupt))

	fs := newFS(t) // all are damaged
	require.NoError(t, vfs.ReplaceFile(fs, dir+"/"+Name(200), content[:50]))
	require.NoError(t, vfs.ReplaceFile(fs, dir+"/"+Name(300), content)) // renamed
	c, damaged, err := Load(fs, dir, nil)
	require.NoError(t, err)
	require.Nil(t, c)
	require.Len(t, damaged, 2)
	require.ErrorContains(t, damaged[0].Err, "renamed")
}

func TestLaterReleaseIsRefused(t *testing.T) {
	fs := newFS(t)
	require.NoError(t, Save(fs, dir, sample(100)))
	c := sample(200)
	b := c.Encode()
	binary.LittleEndian.PutUint32(b[4:], version+1)
	binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
	require.NoError(t, vfs.ReplaceFile(fs, dir+"/"+Name(200), b))
	_, _, err := Load(fs, dir, nil)
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
	require.ErrorContains(t, err, "start the release")
}

func TestSetAsideAndForget(t *testing.T) {
	fs := newFS(t)
	require.NoError(t, Forget(fs, dir))
	for _, pos := range []record.Pos{100, 200} {
		require.NoError(t, Save(fs, dir, sample(pos)))
	}
	require.NoError(t, SetAside(fs, dir, Name(200)))
	c, damaged, err := Load(fs, dir, nil)
	require.NoError(t, err)
	require.Empty(t, damaged)
	require.Equal(t, record.Pos(100), c.Pos)
	require.NoError(t, Save(fs, dir, sample(300)))

	require.NoError(t, Forget(fs, dir))
	after := fs.Crash(rand.New(rand.NewPCG(1, 1)), 0)
	names, err := after.List(dir)
	require.NoError(t, err)
	require.Equal(t, []string{AsideName}, names)
	c, err = Read(after, dir+"/"+AsideName)
	require.Nil(t, c)
	require.ErrorContains(t, err, "checkpoint at 300")
}

// TestPowerLossInSave cuts the power at each operation of a Save: the new checkpoint is found, or the
// one before, and never none or half of one. Once Save returned it is the new one.
//
//fault:power the power goes at each operation of saving a checkpoint => the new one is found or the one before, never half of one
func TestPowerLossInSave(t *testing.T) {
	for nth := 1; ; nth++ {
		for seed := range uint64(12) {
			fs := newFS(t)
			require.NoError(t, Save(fs, dir, sample(100)))
			require.NoError(t, Save(fs, dir, sample(200)))
			fs.CutPower(nth)
			err := Save(fs, dir, sample(300))
			found := fs.Crash(rand.New(rand.NewPCG(seed, 7)), float64(seed%4)/3)
			c, damaged, loadErr := Load(found, dir, nil)
			require.NoError(t, loadErr)
			require.NotNil(t, c, "operation %d seed %d", nth, seed)
			require.Empty(t, damaged, "operation %d seed %d: a rename before the sync of the file", nth, seed)
			want := sample(c.Pos)
			require.Equal(t, &want, c)
			if err != nil {
				require.Contains(t, []record.Pos{200, 300}, c.Pos)
				require.NoError(t, Save(found, dir, sample(400)), "and the next one works")
				continue
			}
			require.Equal(t, record.Pos(300), c.Pos, "saved, but not durable: seed %d", seed)
			if seed == 11 {
				require.Greater(t, nth, 5)
				return
			}
		}
	}
}

// TestFaultsInSave fails each operation of a Save: the checkpoint before stays, and no temporary file.
//
//fault:storage each operation of saving a checkpoint fails => the one before stays, and no temporary file
func TestFaultsInSave(t *testing.T) {
	for nth := 1; ; nth++ {
		mem := newFS(t)
		fs := faultfs.Wrap(mem)
		require.NoError(t, Save(fs, dir, sample(100)))
		fs.Set(faultfs.Fault{Nth: nth, Short: true})
		err := Save(fs, dir, sample(200))
		if !fs.Hit() {
			require.NoError(t, err)
			require.Greater(t, nth, 5)
			return
		}
		require.ErrorIs(t, err, faultfs.ErrInjected)
		c, damaged, err := Load(mem, dir, nil)
		require.NoError(t, err)
		require.Empty(t, damaged)
		require.Contains(t, []record.Pos{100, 200}, c.Pos)
		names, err := mem.List(dir)
		require.NoError(t, err)
		for _, n := range names {
			require.False(t, strings.HasSuffix(n, vfs.TempSuffix), "operation %d left %s", nth, n)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"a", strings.Repeat("n", nameMax)} { // small: long inputs are slow to minimise
		c := Checkpoint{Pos: 8, Sections: []Section{{Name: name, Data: []byte("data")}, {Name: "empty"}}}
		f.Add(c.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Make checksums fit now and then, so that what is behind them is reached.
		if len(b) >= headBytes+footBytes && b[len(b)-1]&1 == 0 {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
			binary.LittleEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[:len(b)-4], castagnoli))
		}
		c, err := Decode(b)
		if err != nil {
			var e *mqerr.Error
			require.True(t, errors.As(err, &e))
			return
		}
		require.Equal(t, b, c.Encode())
	})
}

// TestPieces: a section in pieces is the same file as one in one piece.
func TestPieces(t *testing.T) {
	small := make([]byte, 5000)
	for i := range small {
		small[i] = byte(i)
	}
	large := bytes.Repeat(small, 100)
	fs := newFS(t)
	pieces := Checkpoint{Pos: 8, Sections: []Section{
		{Name: "a", Data: []byte("one"), More: [][]byte{small, nil, large, small}}, {Name: "b", More: [][]byte{small}}, {Name: "c"},
	}}
	require.NoError(t, Save(fs, dir, pieces))
	got, damaged, err := Load(fs, dir, nil)
	require.NoError(t, err)
	require.Empty(t, damaged)
	for i, s := range pieces.Sections {
		require.Equal(t, string(s.Bytes()), string(got.Sections[i].Data))
	}
	whole := Checkpoint{Pos: 8, Sections: got.Sections}
	require.Equal(t, pieces.Encode(), whole.Encode())
}
