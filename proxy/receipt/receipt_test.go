package receipt

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/dchest/siphash"
	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

type ring map[KeyID]Key

func (r ring) HandleKey(id KeyID) (Key, bool) {
	k, ok := r[id]
	return k, ok
}

func testKey(fill byte) Key { return NewKey([16]byte(bytes.Repeat([]byte{fill}, 16))) }

func sample() Handle {
	return Handle{
		Topic: 7, Group: 11, Shard: 2,
		Handle: brokerapi.Handle{Queue: 3, Offset: 123456789012, Lease: 987654321098, Epoch: 5},
	}
}

func requireInvalid(t *testing.T, text string, keys Keys) {
	t.Helper()
	_, err := Decode([]byte(text), keys)
	require.True(t, mqerr.Is(err, mqerr.HandleInvalid), "%q gave %v", text, err)
}

func TestHandleComesBackAsItWas(t *testing.T) {
	keys := ring{1: testKey(1), 255: testKey(2)}
	for _, h := range []Handle{
		{},
		sample(),
		{Topic: math.MaxUint32, Group: math.MaxUint32, Shard: math.MaxUint32, Handle: brokerapi.Handle{
			Queue: math.MaxInt32, Offset: math.MaxInt64, Lease: math.MaxInt64, Epoch: math.MaxUint64,
		}},
		{Handle: brokerapi.Handle{Queue: -1, Offset: -1, Lease: -1}},
	} {
		for id, key := range keys {
			text := h.Append(nil, id, key)
			require.Len(t, text, Size)
			require.Equal(t, text, []byte(strings.Map(printable, string(text))))
			got, err := Decode(text, keys)
			require.NoError(t, err)
			require.Equal(t, h, got)
		}
	}
}

func printable(r rune) rune {
	if r > ' ' && r < 0x7f {
		return r
	}
	return -1
}

// TestEveryFlippedBitIsNoticed damages each bit of the text and each bit of what the text stands for.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	keys := ring{}
	for id := range 256 { // a key for each id, so that a damaged id finds one
		keys[KeyID(id)] = testKey(byte(id))
	}
	text := sample().Append(nil, 9, keys[9])
	for i := range text {
		for bit := range 8 {
			bad := bytes.Clone(text)
			bad[i] ^= 1 << bit
			requireInvalid(t, string(bad), keys)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(string(text))
	require.NoError(t, err)
	for i := range raw {
		for bit := range 8 {
			bad := bytes.Clone(raw)
			bad[i] ^= 1 << bit
			requireInvalid(t, base64.RawURLEncoding.EncodeToString(bad), keys)
		}
	}
}

func TestOtherSpellingsAreRefused(t *testing.T) {
	keys := ring{1: testKey(1)}
	text := string(sample().Append(nil, 1, keys[1]))
	for _, bad := range []string{
		"", "not-a-handle", " " + text, text + " ", text + "=", text + "\n", text[:Size/2], text[:Size-1],
		text[1:], text + text, "\n" + text[:Size-1], text[:10] + "\r\n" + text[12:], strings.ToUpper(text),
		text[:4] + "\n" + text[4:], text[:Size-4] + "\n\n\n\n",
	} {
		requireInvalid(t, bad, keys)
	}
	// The library's own decoder would take this one: line breaks do not count there.
	requireInvalid(t, text[:40]+"\n"+text[40:], keys)
}

func TestKeysThatAreMissingOrDiffer(t *testing.T) {
	text := string(sample().Append(nil, 1, testKey(1)))
	requireInvalid(t, text, ring{})
	requireInvalid(t, text, ring{2: testKey(1)})
	requireInvalid(t, text, ring{1: testKey(2)})
}

// TestUnknownFormsAreRefused: a good MAC alone is not enough.
func TestUnknownFormsAreRefused(t *testing.T) {
	key := testKey(1)
	h := sample()
	good := h.Append(nil, 1, key)
	for _, at := range []int{0, 2, 3} {
		raw, err := base64.RawURLEncoding.DecodeString(string(good))
		require.NoError(t, err)
		raw[at] ^= 4
		seal(raw, key)
		requireInvalid(t, base64.RawURLEncoding.EncodeToString(raw), ring{1: key})
	}
}

func TestAppendAndDecodeDoNotAllocate(t *testing.T) {
	keys := Keys(ring{1: testKey(1)})
	key, _ := keys.HandleKey(1)
	h, buf := sample(), make([]byte, 0, Size)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = h.Append(buf[:0], 1, key) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = Decode(buf, keys) }))
	bad := bytes.Repeat([]byte("x"), Size)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = Decode(bad, keys) }))
}

// FuzzDecode: whatever is taken is exactly what would be given out.
func FuzzDecode(f *testing.F) {
	key := testKey(1)
	f.Add(sample().Append(nil, 1, key))
	f.Add([]byte("not-a-handle"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := Decode(text, ring{1: key})
		if err != nil {
			require.True(t, mqerr.Is(err, mqerr.HandleInvalid))
			return
		}
		require.Equal(t, text, h.Append(nil, 1, key))
	})
}

// seal writes the MAC that fits the rest of raw.
func seal(raw []byte, key Key) {
	lo, hi := siphash.Hash128(key.k0, key.k1, raw[:macAt])
	binary.LittleEndian.PutUint64(raw[macAt:], lo)
	binary.LittleEndian.PutUint64(raw[macAt+8:], hi)
}
