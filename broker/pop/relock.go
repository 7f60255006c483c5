package pop

import (
	"cmp"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Relock puts everything that is in flight of ordered queues under the lock of the message group that Options.Groups
// tells now. It is for a state that was decoded where queues were filled over a hole: the state may have been made by
// somebody who knew groups of messages that are lost by now. It looks at all messages that were handed out or passed
// over in such queues. Behind must have been called.
func (t *Table) Relock() error {
	for _, q := range t.byKey {
		if q.locks == nil {
			continue
		}
		if err := t.relock(q); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) relock(q *queue) error {
	spans := t.allPassed(q)
	t.freeLocks(q)
	if q.locks == nil && len(spans) > 0 {
		q.locks = &locks{byHash: map[uint64]uint32{}}
	}
	newest, err := t.rejoin(q)
	if err != nil {
		return err
	}
	for _, s := range spans {
		for off := s.first; off < s.end(); off++ {
			hash, err := t.hashOrNone(q, off)
			if err != nil {
				return err
			}
			if last, is := newest[hash]; is && off < last { // all that is passed over is younger than what was handed out
				t.lapse(t.revive(q, off))
				continue
			}
			t.pass(q, t.lockOf(q, hash), span{off, 1})
		}
	}
	return nil
}

// allPassed lists what was passed over in a queue, in order.
func (t *Table) allPassed(q *queue) []span {
	var spans []span
	for _, id := range q.locks.byHash {
		l := t.locks.at(id)
		if l.passed == nil {
			continue
		}
		w := l.passed.walk()
		for s, ok := w.nextSpan(); ok; s, ok = w.nextSpan() {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	return spans
}

// rejoin gives the un-done messages of a queue that has no locks theirs, if it is ordered. It returns the newest
// message of each group.
func (t *Table) rejoin(q *queue) (newest map[uint64]int64, err error) {
	if !q.ordered {
		return nil, nil
	}
	newest = map[uint64]int64{}
	t.eachPage(q, func(p *page) {
		for set := p.live; set != 0 && err == nil; set &= set - 1 {
			s := t.spotIn(q, p, lowest(set))
			var hash uint64
			if hash, err = t.hashOrNone(q, s.offset()); err == nil {
				newest[hash] = s.offset()
				t.join(s, t.lockOf(q, hash))
			}
		}
	})
	return newest, err
}

// hashOrNone is hash; behind a hole a message that is not known has none.
func (t *Table) hashOrNone(q *queue, off int64) (uint64, error) {
	hash, err := t.hash(q, off)
	if t.hole != nil && mqerr.Is(err, mqerr.Corrupt) {
		return 0, nil
	}
	return hash, err
}
