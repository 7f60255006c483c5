package timer

import (
	"encoding/binary"
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// Layout of an entry, in memory as in a checkpoint; numbers are little-endian:
//
//	0  8  due         ms since 1970
//	8  8  position    of the message's record
//	16 4  size        of the message's record
//	20 4  queue       -1: chosen when it is delivered
//	24 8  tag hash    0: none
//	32 8  group hash  0: none
const entryBytes = 40

// key orders entries.
type key struct {
	due int64
	pos record.Pos
}

func (k key) less(o key) bool { return k.due < o.due || k.due == o.due && k.pos < o.pos }

func keyAt(b []byte) key {
	return key{int64(binary.LittleEndian.Uint64(b)), record.Pos(binary.LittleEndian.Uint64(b[8:]))}
}

func (e *Entry) put(b []byte) {
	binary.LittleEndian.PutUint64(b, uint64(e.Due))
	binary.LittleEndian.PutUint64(b[8:], uint64(e.Pos))
	binary.LittleEndian.PutUint32(b[16:], e.Size)
	binary.LittleEndian.PutUint32(b[20:], uint32(e.Queue))
	binary.LittleEndian.PutUint64(b[24:], e.TagHash)
	binary.LittleEndian.PutUint64(b[32:], e.GroupHash)
}

func entryAt(b []byte) Entry {
	k := keyAt(b)
	return Entry{
		Due: k.due, Pos: k.pos,
		Size:      binary.LittleEndian.Uint32(b[16:]),
		Queue:     record.QueueID(binary.LittleEndian.Uint32(b[20:])),
		TagHash:   binary.LittleEndian.Uint64(b[24:]),
		GroupHash: binary.LittleEndian.Uint64(b[32:]),
	}
}

// leafMax is how many entries a leaf has at most: with a size that the allocator does not round up.
const leafMax = 10880 / entryBytes

// leaf is a run of entries in order, encoded.
type leaf struct {
	data []byte
	// shared says that a snapshot refers to data: its bytes must stay as they are, those behind them may
	// be written.
	shared bool
}

func (l *leaf) len() int { return len(l.data) / entryBytes }

func (l *leaf) at(i int) []byte { return l.data[i*entryBytes : (i+1)*entryBytes] }

func (l *leaf) first() key { return keyAt(l.data) }

func (l *leaf) last() key { return keyAt(l.at(l.len() - 1)) }

// search returns the index of the first entry that is not below k, and whether it is k.
func (l *leaf) search(k key) (int, bool) {
	lo, hi := 0, l.len()
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if keyAt(l.at(mid)).less(k) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < l.len() && keyAt(l.at(lo)) == k
}

// insert adds an entry at index i of a leaf that is not full.
func (l *leaf) insert(i int, e *Entry) {
	at, n := i*entryBytes, len(l.data)
	inPlace := n+entryBytes <= cap(l.data) && (!l.shared || at == n)
	if !inPlace {
		grown := sized(n+entryBytes, n+n/8+2*entryBytes)
		copy(grown, l.data[:at])
		copy(grown[at+entryBytes:], l.data[at:])
		l.data, l.shared = grown, false
	} else {
		l.data = l.data[:n+entryBytes]
		copy(l.data[at+entryBytes:], l.data[at:n])
	}
	e.put(l.data[at:])
}

// remove takes the entry at index i out.
func (l *leaf) remove(i int) {
	at, n := i*entryBytes, len(l.data)-entryBytes
	if l.shared || 4*n < 3*cap(l.data) {
		less := sized(n, n+n/8)
		copy(less, l.data[:at])
		copy(less[at:], l.data[at+entryBytes:])
		l.data, l.shared = less, false
		return
	}
	copy(l.data[at:], l.data[at+entryBytes:])
	l.data = l.data[:n]
}

// split cuts the leaf in the middle and returns what is behind.
func (l *leaf) split() *leaf {
	at := l.len() / 2 * entryBytes
	right := &leaf{data: clone(l.data[at:])}
	l.data, l.shared = clone(l.data[:at]), false
	return right
}

// clone copies b, with the capacity that the allocator gives.
func clone(b []byte) []byte {
	c := sized(len(b), len(b))
	copy(c, b)
	return c
}

// sized makes n bytes with room for about size, as much as the allocator has for that.
func sized(n, size int) []byte {
	return slices.Grow([]byte(nil), max(n, size))[:n]
}

// ordered tells whether entries rise strictly, and go on behind last.
func ordered(b []byte, last key) bool {
	for len(b) > 0 {
		k := keyAt(b)
		if !last.less(k) {
			return false
		}
		last, b = k, b[entryBytes:]
	}
	return true
}
