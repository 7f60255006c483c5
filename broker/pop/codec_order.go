package pop

import (
	"encoding/binary"
	"math"
	"slices"
)

// What the encoded state says of the order of a queue.
const (
	orderIs  = 1
	orderWas = 2 // and something that was passed over is not handed out yet
)

// encodeLocks appends the order of a queue and its locks by hash. It returns the index of each lock.
func (t *Table) encodeLocks(dst []byte, q *queue) ([]byte, map[uint32]int) {
	switch {
	case q.locks == nil:
		return append(dst, 0), nil
	case q.ordered:
		dst = append(dst, orderIs)
	default:
		dst = append(dst, orderWas)
	}
	hashes := make([]uint64, 0, len(q.locks.byHash))
	for hash := range q.locks.byHash {
		hashes = append(hashes, hash)
	}
	slices.Sort(hashes)
	dst = binary.AppendUvarint(dst, uint64(len(hashes)))
	index := make(map[uint32]int, len(hashes))
	for i, hash := range hashes {
		id := q.locks.byHash[hash]
		index[id] = i
		dst = binary.LittleEndian.AppendUint64(dst, hash)
		dst = t.locks.at(id).passed.encode(dst)
	}
	return dst, index
}

// encode appends the number of spans and the spans. p may be nil.
func (p *passed) encode(dst []byte) []byte {
	if p == nil {
		return append(dst, 0)
	}
	n := uint64(0)
	w := p.walk()
	for _, ok := w.nextSpan(); ok; _, ok = w.nextSpan() {
		n++
	}
	dst = binary.AppendUvarint(dst, n)
	end := int64(0)
	w = p.walk()
	for s, ok := w.nextSpan(); ok; s, ok = w.nextSpan() {
		dst = appendSpan(dst, end, s)
		end = s.end()
	}
	return dst
}

// decoded makes a queue that an encoded state names.
func (t *Table) decoded(k Key, next int64, ordered bool) *queue {
	q := t.newQueue(k)
	q.recorded, q.next = true, next
	if q.ordered, q.locks = false, nil; ordered {
		t.setOrdered(q)
	}
	return q
}

// locks reads the locks of a queue.
func (d *decoder) locks(q *queue) []uint32 {
	if !q.ordered {
		q.locks = &locks{byHash: map[uint64]uint32{}}
	}
	var ids []uint32
	last := uint64(0)
	for i := range d.uvarint() {
		hash := d.u64()
		d.must(i == 0 || hash > last, "locks out of order")
		if d.bad != "" {
			break
		}
		last = hash
		id := d.t.lockOf(q, hash)
		ids = append(ids, id)
		d.passed(q, id)
	}
	return ids
}

// passed reads what was passed over of a message group.
func (d *decoder) passed(q *queue, id uint32) {
	end := int64(0)
	for i := range d.uvarint() {
		head := d.upTo(math.MaxInt64)
		s := span{int64(head >> 1), 1}
		if head&1 != 0 {
			s.n += int64(d.upTo(math.MaxInt64-2)) + 1
		}
		d.must(s.first <= q.next-end && (i == 0 || s.first > 0), "passed over out of range")
		s.first += end
		d.must(s.n <= q.next-s.first, "passed over out of range")
		if d.bad != "" {
			return
		}
		d.t.pass(q, id, s)
		end = s.end()
	}
}

// settle refuses locks of nothing, and messages of two locks.
func (d *decoder) settle(q *queue, ids []uint32) {
	for _, id := range ids {
		l := d.t.locks.at(id)
		d.must(l.undone > 0 || l.passed != nil, "lock of nothing")
	}
	d.must(q.ordered || q.locks == nil || len(ids) > 0, "order that is over leaves nothing")
	d.must(d.passedBy == nil || d.passedBy.clean(), "passed over in two locks")
}
