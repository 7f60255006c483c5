package engine

import (
	"bytes"
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// FuzzTag: any bytes for system properties, and the last tag of good ones is found.
func FuzzTag(f *testing.F) {
	f.Add([]byte{tagField<<3 | 2, 3, 'a', 'b', 'c'}, []byte("tag"))
	f.Add([]byte{0x10, 0x96, 0x01, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4}, []byte{})
	f.Add([]byte{0x0b}, []byte("x"))
	f.Add(bytes.Repeat([]byte{0xff}, 20), []byte("x"))
	f.Fuzz(func(t *testing.T, sys, tag []byte) {
		tagOf(sys)
		if len(tag) > 127 {
			return
		}
		sys = append([]byte{5 << 3, 7, tagField<<3 | 2, byte(len(tag))}, tag...)
		if got := tagOf(sys); !bytes.Equal(got, tag) {
			t.Errorf("found %q, not %q", got, tag)
		}
	})
}

// FuzzBase: any bytes are refused or are what they encode to.
func FuzzBase(f *testing.F) {
	f.Add(encodeBase(3, 1_700_000_000_000))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		epoch, stamp, err := decodeBase(b)
		if err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		if !bytes.Equal(encodeBase(epoch, stamp), b) {
			t.Errorf("%x decodes to %d, %d", b, epoch, stamp)
		}
	})
}
