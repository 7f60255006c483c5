package pop

import "github.com/perigee-mq/perigee/store/record"

// ApplyReset takes a record that moves a group's position in a queue: everything below off is done,
// everything at or above it was never handed out. All leases of the queue end, and their handles name
// nothing any more: below off the message is done, and above it the next lease is another one.
func (t *Table) ApplyReset(k Key, off record.QueueOffset) error {
	if off < 0 {
		return corrupt("reset of %v to %d", k, off)
	}
	q := t.record(k, int64(off))
	t.eachPage(q, func(p *page) {
		for set := p.live; set != 0; set &= set - 1 {
			t.detach(t.spotIn(q, p, lowest(set)))
		}
	})
	t.freeTree(q)
	t.undone -= q.undone
	q.undone, q.height, q.prefix = 0, 0, 0
	q.next = int64(off)
	return nil
}

// Undone counts the un-done messages of a queue at or above off. It looks at each page
// and at all that was passed over.
func (t *Table) Undone(k Key, off record.QueueOffset) int64 {
	q := t.queueOf(k)
	if q == nil {
		return 0
	}
	n := int64(0)
	t.eachPage(q, func(p *page) { n += p.atLeast(int64(off)) })
	if q.locks != nil {
		for _, id := range q.locks.byHash {
			if l := t.locks.at(id); l.passed != nil {
				n += l.passed.atLeast(int64(off))
			}
		}
	}
	return n
}
