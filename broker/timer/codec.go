package timer

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// A table is encoded as its topics by id, each with a head and its entries in order: those that wait, then
// those that were recalled (docs/format/checkpoint.md). Numbers are little-endian:
//
//	0  4  topic
//	4  8  entries that wait
//	12 8  entries that were recalled
const headBytes = 20

// Share returns the encoded table in parts, one behind the other. The parts stay as they are, whatever
// happens to the table, and must not be changed: most of them are its own memory.
func (t *Table) Share() [][]byte {
	all := make([]*topic, 0, len(t.topics))
	leaves := 0
	for _, p := range t.topics {
		all = append(all, p)
		leaves += len(p.waiting.leaves) + len(p.recalled.leaves)
	}
	slices.SortFunc(all, func(a, b *topic) int { return cmp.Compare(a.id, b.id) })
	heads := make([]byte, 0, headBytes*len(all))
	parts := make([][]byte, 0, len(all)+leaves)
	for _, p := range all {
		n := len(heads)
		heads = binary.LittleEndian.AppendUint32(heads, uint32(p.id))
		heads = binary.LittleEndian.AppendUint64(heads, uint64(p.waiting.n))
		heads = binary.LittleEndian.AppendUint64(heads, uint64(p.recalled.n))
		parts = append(parts, heads[n:len(heads):len(heads)])
		parts = p.recalled.share(p.waiting.share(parts))
	}
	return parts
}

// Encode appends the table to dst: equal tables give equal bytes.
func (t *Table) Encode(dst []byte) []byte {
	for _, p := range t.Share() {
		dst = append(dst, p...)
	}
	return dst
}

// Decode replaces the table with an encoded one. Anything that Encode would not write is of kind Corrupt.
func (t *Table) Decode(b []byte) error {
	*t = *New()
	last := int64(-1)
	for len(b) > 0 {
		if len(b) < headBytes {
			return mqerr.New(mqerr.Corrupt, "timers: %d bytes behind the last topic", len(b))
		}
		id := record.TopicID(binary.LittleEndian.Uint32(b))
		waiting, recalled := binary.LittleEndian.Uint64(b[4:]), binary.LittleEndian.Uint64(b[12:])
		b = b[headBytes:]
		room := uint64(len(b) / entryBytes)
		if int64(id) <= last || waiting > room || recalled > room-waiting || waiting+recalled == 0 {
			return mqerr.New(mqerr.Corrupt, "timers: topic %d has %d and %d entries in %d bytes", id, waiting, recalled, len(b))
		}
		last = int64(id)
		p := &topic{id: id, head: -1}
		cut, end := waiting*entryBytes, (waiting+recalled)*entryBytes
		if !valid(b[:end]) || !p.waiting.load(b[:cut]) || !p.recalled.load(b[cut:end]) {
			return mqerr.New(mqerr.Corrupt, "timers: entries of topic %d are not in order", id)
		}
		for at := uint64(0); at < cut; at += entryBytes {
			e := entryAt(b[at:])
			p.count(&e, 1)
		}
		b = b[end:]
		t.topics[id] = p
		t.waiting += p.waiting.n
		t.recalled += p.recalled.n
		t.place(p)
	}
	return nil
}

// valid tells whether encoded entries have values that Add takes.
func valid(b []byte) bool {
	for ; len(b) > 0; b = b[entryBytes:] {
		if e := entryAt(b); e.Due < 0 || e.Pos < 0 || e.Queue < AnyQueue {
			return false
		}
	}
	return true
}

// EachShared calls fn with the positions of the messages that wait, in parts that Share returned.
func EachShared(parts [][]byte, fn func(pos record.Pos)) {
	waiting, recalled := uint64(0), uint64(0)
	for _, p := range parts {
		if waiting == 0 && recalled == 0 {
			waiting, recalled = binary.LittleEndian.Uint64(p[4:]), binary.LittleEndian.Uint64(p[12:])
			continue
		}
		for ; len(p) > 0; p = p[entryBytes:] {
			if waiting == 0 {
				recalled--
				continue
			}
			waiting--
			fn(keyAt(p).pos)
		}
	}
}
