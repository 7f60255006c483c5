package engine

import (
	"encoding/binary"
	"slices"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// tagged compares the tag in encoded SystemProperties with a filter by text.
func tagged(f *brokerapi.Filter, sys []byte) bool {
	if f.Kind != brokerapi.FilterTags {
		return true
	}
	tag := tagOf(sys)
	return tag != nil && slices.Contains(f.Tags, string(tag))
}

// tagField is the number of SystemProperties.tag in the public protocol.
const tagField = 1

// tagOf finds the tag in encoded SystemProperties, nil if there is none. The bytes were checked when
// the message came in; anything malformed ends the search.
func tagOf(b []byte) []byte {
	var tag []byte
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 {
			return tag
		}
		b = b[n:]
		switch key & 7 {
		case 0:
			_, n = binary.Uvarint(b)
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			size, m := binary.Uvarint(b)
			if m <= 0 || size > uint64(len(b)-m) {
				return tag
			}
			n = m + int(size)
			if key>>3 == tagField {
				tag = b[m:n]
			}
		default:
			return tag
		}
		if n <= 0 || n > len(b) {
			return tag
		}
		b = b[n:]
	}
	return tag
}
