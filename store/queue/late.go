package queue

import (
	"github.com/perigee-mq/perigee/store/record"
)

// Late calls fn with the entries of a queue at offsets of [from, to) whose messages lie below pos, by offset,
// until fn returns an error, which it returns. Offsets that are not in the queue are left out. A message that
// became visible long after it was stored is such an entry; so extents without one are passed over unread. It
// may be called from anywhere, and fn may call the store.
func (s *Store) Late(k Key, from, to record.QueueOffset, pos record.Pos, fn func(off record.QueueOffset, e Entry) error) error {
	var buf [ExtentEntries]Entry
	for {
		off, n, err := s.lateExtent(k, from, to, pos, buf[:])
		if err != nil || n == 0 {
			return err
		}
		for i := range buf[:n] {
			if buf[i].Pos < pos {
				if err := fn(off+record.QueueOffset(i), buf[i]); err != nil {
					return err
				}
			}
		}
		from = off + record.QueueOffset(n)
	}
}

// lateExtent reads the entries of [from, to) in the first extent that may have one below pos.
func (s *Store) lateExtent(k Key, from, to record.QueueOffset, pos record.Pos, dst []Entry) (off record.QueueOffset, n int, err error) {
	s.mu.RLock()
	q := s.queues[k]
	if q == nil {
		s.mu.RUnlock()
		return 0, 0, nil
	}
	from, to = max(from, q.min), min(to, q.max)
	for from < to && q.lowest(from) >= pos {
		from += ExtentEntries - from%ExtentEntries
	}
	if from >= to {
		s.mu.RUnlock()
		return 0, 0, nil
	}
	n, err = s.readExtentLocked(q, from, dst[:min(ExtentEntries, to-from)])
	learn := err == nil && n == ExtentEntries && q.lowest(from) == unknownLow
	s.mu.RUnlock()
	if learn {
		s.learn(k, from, dst[:n])
	}
	return from, n, err
}

// lowest is the lowest position in the extent of an offset.
func (q *queue) lowest(off record.QueueOffset) record.Pos {
	if i := q.index(off); i < len(q.lows) {
		return q.lows[i]
	}
	return q.low
}

// learn notes the lowest position of a full extent that was read.
func (s *Store) learn(k Key, first record.QueueOffset, entries []Entry) {
	low := entries[0].Pos
	for i := range entries {
		low = min(low, entries[i].Pos)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[k]; q != nil && first >= q.min && q.index(first) < len(q.lows) {
		q.lows[q.index(first)] = low
	}
}
