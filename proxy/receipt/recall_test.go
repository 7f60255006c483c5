package receipt

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

func TestRecallHandleComesBackAsItWas(t *testing.T) {
	keys := ring{1: testKey(1), 255: testKey(2)}
	for _, h := range []Recall{
		{},
		{Topic: 7, Shard: 2, Ref: 987654321098, DeliverAt: 1_700_000_000_000},
		{Topic: math.MaxUint32, Shard: math.MaxUint32, Ref: math.MaxInt64, DeliverAt: math.MaxInt64},
	} {
		for id, key := range keys {
			text := h.Append(nil, id, key)
			require.Len(t, text, RecallSize)
			got, err := DecodeRecall(text, keys)
			require.NoError(t, err)
			require.Equal(t, h, got)
		}
	}
}

// TestDamagedRecallHandles: any other text is refused, a receipt handle too, whatever key it has.
func TestDamagedRecallHandles(t *testing.T) {
	keys := ring{1: testKey(1)}
	text := Recall{Topic: 7, Shard: 2, Ref: 4096, DeliverAt: 1_700_000_000_000}.Append(nil, 1, testKey(1))
	bad := func(text []byte) {
		t.Helper()
		_, err := DecodeRecall(text, keys)
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%q gave %v", text, err)
	}
	for i := range text {
		for bit := range 8 {
			flipped := bytes.Clone(text)
			flipped[i] ^= 1 << bit
			bad(flipped)
		}
		bad(text[:i])
	}
	bad(append(bytes.Clone(text), 'A'))
	bad(Recall{Topic: 7}.Append(nil, 2, testKey(1)))
	bad(Recall{Topic: 7}.Append(nil, 1, testKey(2)))
	receipt := sample().Append(nil, 1, testKey(1))
	bad(receipt)
	bad(receipt[:RecallSize])
}

func FuzzDecodeRecall(f *testing.F) {
	keys := ring{1: testKey(1)}
	f.Add(Recall{Topic: 7}.Append(nil, 1, testKey(1)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		if h, err := DecodeRecall(text, keys); err == nil {
			require.Equal(t, text, h.Append(nil, KeyID(1), testKey(1)))
		}
	})
}
