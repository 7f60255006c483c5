package queue

import (
	"slices"
	"sort"

	"github.com/perigee-mq/perigee/store/record"
)

// Drop removes all queues of a topic.
func (s *Store) Drop(topic record.TopicID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sortLocked()
	lo := sort.Search(len(s.order), func(i int) bool { return s.order[i].key.Topic >= topic })
	hi := lo
	for ; hi < len(s.order) && s.order[hi].key.Topic == topic; hi++ {
		s.removeLocked(s.order[hi])
	}
	s.order = slices.Delete(s.order, lo, hi)
	s.warm = slices.DeleteFunc(s.warm, func(q *queue) bool { return !q.warm })
}

// DropQueue removes one queue. What it costs does not grow with the number of queues: those that are
// gone leave the lists with the next Encode.
func (s *Store) DropQueue(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[k]; q != nil {
		s.removeLocked(q)
		s.gone++
	}
}

func (s *Store) removeLocked(q *queue) {
	delete(s.queues, q.key)
	q.gone = true
	for _, x := range q.extents {
		s.retireLocked(x)
	}
	q.extents, q.lows = nil, nil
	s.dropBufferLocked(q)
}

func (s *Store) retireLocked(x uint32) {
	s.cache.forget(x)
	s.files.retire(x, s.encodes)
}

// DropBefore forgets the entries of a queue before off, whose messages are no longer in the log. Offsets
// stay: a queue that lost all its entries goes on where it was.
func (s *Store) DropBefore(k Key, off record.QueueOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[k]
	if q == nil || off <= q.min {
		return
	}
	off = min(off, q.max)
	n := min(q.index(off), len(q.extents))
	for _, x := range q.extents[:n] {
		s.retireLocked(x)
	}
	q.extents = slices.Clone(q.extents[n:])
	q.lows = slices.Clone(q.lows[min(n, len(q.lows)):])
	q.min = off
}

func (s *Store) sortLocked() {
	if s.gone > 0 {
		s.order = slices.DeleteFunc(s.order, func(q *queue) bool { return q.gone })
		s.warm = slices.DeleteFunc(s.warm, func(q *queue) bool { return !q.warm })
		s.gone = 0
	}
	if !s.sorted {
		slices.SortFunc(s.order, func(a, b *queue) int { return a.key.Compare(b.key) })
		s.sorted = true
	}
}
