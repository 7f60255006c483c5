package offset

import (
	"encoding/binary"
	"math"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// stateVersion is the version of the encoded table. Equal tables have equal bytes:
//
//	u8       version
//	uvarint  number of positions, then each, by group, topic, queue:
//	           uvarint group, topic, queue, offset
const stateVersion = 1

// entryMin is the least that one position takes.
const entryMin = 4

// Encode appends the table to dst.
func (t *Table) Encode(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.AppendUvarint(dst, uint64(len(t.at)))
	for _, k := range t.keys() {
		dst = binary.AppendUvarint(dst, uint64(k.Group))
		dst = binary.AppendUvarint(dst, uint64(k.Topic))
		dst = binary.AppendUvarint(dst, uint64(k.Queue))
		dst = binary.AppendUvarint(dst, uint64(t.at[k]))
	}
	return dst
}

// Decode replaces the table with an encoded one. After an error, which is Corrupt, or Unsupported for a
// table of a later release, the table is as before.
func (t *Table) Decode(b []byte) error {
	if len(b) == 0 {
		return mqerr.New(mqerr.Corrupt, "table of positions is empty")
	}
	if b[0] != stateVersion {
		return mqerr.New(mqerr.Unsupported, "table of positions has version %d, this release knows %d", b[0], stateVersion)
	}
	r := reader{b: b[1:]}
	n := r.upTo(uint64(len(b) / entryMin))
	at := make(map[Key]record.QueueOffset, n)
	groups := readers{}
	var last Key
	for i := range n {
		k := Key{record.GroupID(r.upTo(math.MaxUint32)), record.TopicID(r.upTo(math.MaxUint32)), record.QueueID(r.upTo(math.MaxInt32))}
		off := record.QueueOffset(r.upTo(math.MaxInt64))
		if r.bad || i > 0 && last.Compare(k) >= 0 {
			return mqerr.New(mqerr.Corrupt, "table of positions: entry %d of %d is not valid", i, n)
		}
		at[k], last = off, k
		groups.add(k, 1)
	}
	if r.bad || len(r.b) > 0 {
		return mqerr.New(mqerr.Corrupt, "table of positions does not end behind its %d entries", n)
	}
	t.at, t.groups = at, groups
	return nil
}

// reader reads numbers. After the first fault it returns zeros.
type reader struct {
	b   []byte
	bad bool
}

// upTo reads a number of at most bound, in its shortest form.
func (r *reader) upTo(bound uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || v > bound || n > 1 && r.b[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}
