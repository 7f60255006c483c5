package pop

import (
	"math"
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// Trim takes the record that makes a queue begin at first: what lies below is done, but for messages in held,
// which rise: they were handed out and stay as they are. It tells lost, unless that is nil, of each run of
// offsets [from, to) that was not done: passed over, or never handed out.
func (t *Table) Trim(k Key, first record.QueueOffset, held []record.QueueOffset, lost func(from, to record.QueueOffset)) {
	q := t.queueOf(k)
	if q == nil {
		return
	}
	if lost == nil {
		lost = func(record.QueueOffset, record.QueueOffset) {}
	}
	t.hashes.n = 0
	for _, off := range t.Below(k, first, math.MaxInt, nil) {
		if _, keep := slices.BinarySearch(held, off); !keep {
			if s, ok := t.find(q, int64(off)); ok {
				t.finish(s)
			}
		}
	}
	t.trimPassed(q, int64(first), lost)
	if q.next < int64(first) {
		if q.recorded {
			lost(record.QueueOffset(q.next), first)
		}
		q.next = int64(first)
	}
}

// trimPassed drops what was passed over below first.
func (t *Table) trimPassed(q *queue, first int64, lost func(from, to record.QueueOffset)) {
	if q.locks == nil || q.locks.passed == 0 {
		return
	}
	ids := make([]uint32, 0, len(q.locks.byHash))
	for _, id := range q.locks.byHash {
		if p := t.locks.at(id).passed; p != nil && p.head.first < first {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		l := t.locks.at(id)
		q.locks.passed -= l.passed.dropBelow(first, func(s span) { lost(record.QueueOffset(s.first), record.QueueOffset(s.end())) })
		if l.passed.n == 0 {
			l.passed = nil
		}
		t.settle(q, id)
	}
}

// Unread tells lost of each run of offsets [from, to) below first that is not done and was not handed out
// either: what Trim would tell. It changes nothing.
func (t *Table) Unread(k Key, first record.QueueOffset, lost func(from, to record.QueueOffset)) {
	q := t.recorded(k)
	if q == nil {
		return
	}
	if q.locks != nil && q.locks.passed > 0 {
		for _, id := range q.locks.byHash {
			p := t.locks.at(id).passed
			if p == nil || p.head.first >= int64(first) {
				continue
			}
			w := p.walk()
			for s, ok := w.nextSpan(); ok && s.first < int64(first); s, ok = w.nextSpan() {
				lost(record.QueueOffset(s.first), min(record.QueueOffset(s.end()), first))
			}
		}
	}
	if q.next < int64(first) {
		lost(record.QueueOffset(q.next), first)
	}
}

// Below appends the offsets below first that were handed out and are not done, in order, the lowest most of them.
func (t *Table) Below(k Key, first record.QueueOffset, most int, dst []record.QueueOffset) []record.QueueOffset {
	q := t.queueOf(k)
	if q == nil {
		return dst
	}
	end := len(dst) + min(most, math.MaxInt-len(dst))
	t.eachPage(q, func(p *page) {
		for set := p.live; set != 0 && p.first() < int64(first) && len(dst) < end; set &= set - 1 {
			if off := p.first() + int64(lowest(set)); off < int64(first) {
				dst = append(dst, record.QueueOffset(off))
			}
		}
	})
	return dst
}

// OldestUnread is the lowest offset that is not done and was not handed out: what a trim up to it or below
// would lose nothing of. Known is false for a queue that no record has named.
func (t *Table) OldestUnread(k Key) (off record.QueueOffset, known bool) {
	q := t.recorded(k)
	if q == nil {
		return 0, false
	}
	at := q.next
	if q.locks != nil && q.locks.passed > 0 {
		for _, id := range q.locks.byHash {
			if p := t.locks.at(id).passed; p != nil {
				at = min(at, p.head.first)
			}
		}
	}
	return record.QueueOffset(at), true
}

// IsUndone reports whether a message is not done for a group that has read its queue: leased, waiting, passed
// over, or not handed out yet.
func (t *Table) IsUndone(k Key, off record.QueueOffset) bool {
	q := t.recorded(k)
	if q == nil {
		return false
	}
	if int64(off) >= q.next {
		return true
	}
	_, handedOut := t.find(q, int64(off))
	return handedOut || t.passedOver(q, int64(off))
}

// EachQueue calls fn for the queues that a record has named, in no order. fn must not change the table.
func (t *Table) EachQueue(fn func(k Key)) {
	for k, q := range t.byKey {
		if q.recorded {
			fn(k)
		}
	}
}

// EachKnown is EachQueue for all queues, those included that Start alone has named.
func (t *Table) EachKnown(fn func(k Key)) {
	for k := range t.byKey {
		fn(k)
	}
}
