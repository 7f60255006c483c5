package pop

import "github.com/perigee-mq/perigee/store/record"

// Cut takes a queue back to an end: nothing at or above it was ever handed out or passed over. What lies below stays
// as it is. It is for an end that nothing explains, behind a hole of the log.
func (t *Table) Cut(k Key, end record.QueueOffset) {
	q := t.recorded(k)
	if q == nil || q.next <= int64(end) || end < 0 {
		return
	}
	t.hashes.n = 0
	var above []int64
	t.eachPage(q, func(p *page) {
		for set := p.live; set != 0; set &= set - 1 {
			if off := p.first() + int64(lowest(set)); off >= int64(end) {
				above = append(above, off)
			}
		}
	})
	for _, off := range above {
		if s, ok := t.find(q, off); ok {
			t.finish(s)
		}
	}
	t.cutPassed(q, int64(end))
	q.next = int64(end)
}

// cutPassed drops what was passed over at or above end.
func (t *Table) cutPassed(q *queue, end int64) {
	if q.locks == nil || q.locks.passed == 0 {
		return
	}
	var ids []uint32
	for _, id := range q.locks.byHash {
		if t.locks.at(id).passed != nil {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		l := t.locks.at(id)
		kept := new(passed)
		w := l.passed.walk()
		for s, ok := w.nextSpan(); ok && s.first < end; s, ok = w.nextSpan() {
			kept.add(span{s.first, min(s.n, end-s.first)})
		}
		q.locks.passed -= l.passed.n - kept.n
		if l.passed = kept; kept.n == 0 {
			l.passed = nil
		}
		t.settle(q, id)
	}
}
