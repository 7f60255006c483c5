package lite

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/store/record"
)

// stateVersion is the version of the encoded state. Equal tables have equal bytes:
//
//	u8       version
//	uvarint  number of parents, then each, by topic id:
//	           uvarint topic id, next queue id
//	           uvarint number of lite topics, then each, by queue id:
//	             uvarint queue id minus that of the one before (at first: minus FirstQueue - 1)
//	             uvarint length and name
//	             varint  time of its last use minus that of the one before (at first: minus 0), ms
const stateVersion = 1

// childMin is the least that a lite topic takes.
const childMin = 4

// Encode appends the table to dst.
func (t *Table) Encode(dst []byte) []byte {
	dst = append(dst, stateVersion)
	parents := t.sorted()
	dst = binary.AppendUvarint(dst, uint64(len(parents)))
	for _, id := range parents {
		f := t.parents[id]
		dst = binary.AppendUvarint(dst, uint64(id))
		dst = binary.AppendUvarint(dst, uint64(f.next))
		dst = binary.AppendUvarint(dst, uint64(len(f.byQueue)))
		queue, ms := FirstQueue-1, int64(0)
		for _, c := range f.children() {
			dst = binary.AppendUvarint(dst, uint64(c.Queue-queue))
			dst = binary.AppendUvarint(dst, uint64(len(c.Name)))
			dst = append(dst, c.Name...)
			dst = binary.AppendVarint(dst, c.ActiveMS-ms)
			queue, ms = c.Queue, c.ActiveMS
		}
	}
	return dst
}

// Decode replaces the table with an encoded one.
func (t *Table) Decode(b []byte) error {
	*t = *New()
	r := reader{b: b}
	if v := r.byte(); v != stateVersion {
		return corrupt("table of lite topics of version %d, this release knows %d", v, stateVersion)
	}
	last := int64(-1)
	for range r.count(3) {
		id, next := r.uvarint(), r.uvarint()
		if r.bad || id > 1<<32-1 || int64(id) <= last || next < uint64(FirstQueue) || next > uint64(lastQueue) {
			return r.err()
		}
		last = int64(id)
		f := newParent()
		f.next = record.QueueID(next)
		t.parents[record.TopicID(id)] = f
		if !t.decodeChildren(&r, f) {
			return r.err()
		}
	}
	if r.bad || len(r.b) > 0 {
		return r.err()
	}
	return nil
}

func (t *Table) decodeChildren(r *reader, f *parent) bool {
	queue, ms := uint64(FirstQueue-1), int64(0)
	for range r.count(childMin) {
		step := r.uvarint()
		name := string(r.take(r.uvarint()))
		ms += r.varint()
		if r.bad || step == 0 || step > uint64(lastQueue) || queue+step >= uint64(f.next) ||
			name == "" || len(name) > NameMax || f.byName[name] != nil || ms < 0 {
			return false
		}
		queue += step
		t.add(f, &Topic{Queue: record.QueueID(queue), Name: name, ActiveMS: ms})
	}
	return !r.bad
}

// reader reads what Encode wrote; after something that cannot be, everything is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) err() error {
	return corrupt("table of lite topics: cut off or out of order, %d bytes left", len(r.b))
}

func (r *reader) take(n uint64) []byte {
	if r.bad || n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 || r.bad {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of things that take least bytes each.
func (r *reader) count(least uint64) uint64 {
	n := r.uvarint()
	if n > uint64(len(r.b))/least {
		r.bad = true
		return 0
	}
	return n
}
