package queue

import (
	"sort"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Read fills dst with the entries of a queue from offset from on, as many as there are, and returns how
// many. None at or behind the end; NotFound before the first offset that is kept; a
// Damage if an extent cannot be read: then its entries have to be looked up in the log, for Mend.
func (s *Store) Read(k Key, from record.QueueOffset, dst []Entry) (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	q := s.queues[k]
	if q == nil || from >= q.max {
		return 0, nil
	}
	if from < q.min {
		return 0, mqerr.New(mqerr.NotFound, "topic %d queue %d begins at offset %d, there is no %d any more", k.Topic, k.Queue, q.min, from)
	}
	n := 0
	for n < len(dst) && from < q.max {
		got, err := s.readExtentLocked(q, from, dst[n:])
		if err != nil {
			return n, err
		}
		n += got
		from += record.QueueOffset(got)
	}
	return n, nil
}

// At returns one entry. NotFound if the queue has none with that offset.
func (s *Store) At(k Key, off record.QueueOffset) (Entry, error) {
	var one [1]Entry
	n, err := s.Read(k, off, one[:])
	if err == nil && n == 0 {
		err = mqerr.New(mqerr.NotFound, "topic %d queue %d has no offset %d yet", k.Topic, k.Queue, off)
	}
	return one[0], err
}

// readExtentLocked reads entries from off, which is within bounds, up to the end of its extent, and at
// least one.
func (s *Store) readExtentLocked(q *queue, off record.QueueOffset, dst []Entry) (int, error) {
	i := int(off % ExtentEntries)
	want := q.head(off - off%ExtentEntries)
	if want.first+ExtentEntries > q.max && i >= int(q.base) && len(q.buf) > 0 { // the tail
		return getAll(dst, q.buf[(i-int(q.base))*EntryBytes:]), nil
	}
	n, err := s.cache.read(s.files, q.extents[q.index(off)], &want, i, dst)
	return n, s.damaged(&want, err)
}

// Seek returns the first offset whose entry is not before what is sought, and the end of the queue if
// all are. before must be true for a prefix of the queue only.
func (s *Store) Seek(k Key, before func(e *Entry) bool) (record.QueueOffset, error) {
	lo, hi := s.Bounds(k)
	var failed error
	n := sort.Search(int(hi-lo), func(i int) bool {
		if failed != nil {
			return true
		}
		e, err := s.At(k, lo+record.QueueOffset(i))
		failed = err
		return err != nil || !before(&e)
	})
	if failed != nil {
		return 0, failed
	}
	return lo + record.QueueOffset(n), nil
}

// SeekTime returns the first offset that is visible since ms (milliseconds since 1970) or later, and the
// end of the queue if there is none.
func (s *Store) SeekTime(k Key, ms int64) (record.QueueOffset, error) {
	return s.Seek(k, func(e *Entry) bool { return e.Time < ms })
}
