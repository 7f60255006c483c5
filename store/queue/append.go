package queue

import (
	"hash/crc32"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// queue is one queue. Its tail is the extent of offset max: it has max % ExtentEntries entries, the first
// disk of which are in an extent and those from base on in the buffer.
//
// Invariants: base <= disk <= max % ExtentEntries; the tail's extent is the last of extents if disk > 0;
// with the buffer dropped base = disk = max % ExtentEntries.
type queue struct {
	key      Key
	min, max record.QueueOffset
	extents  []uint32 // of the entries from min on, rounded down to a whole extent
	// lows has, of each full extent, the lowest position of a message in it, and low that of the tail: what
	// was readable when the extent began may count, or no more. unknownLow: a directory of version 1 had none.
	lows   []record.Pos
	low    record.Pos
	buf    []byte // encoded entries of the tail, from index base on
	crc    uint32 // of the first disk entries of the tail
	base   uint8
	disk   uint8
	warm   bool // in Store.warm
	active bool // appended to since the last Encode
	gone   bool // removed; order may still have it
}

// tail is the number of entries in the extent that is not full.
func (q *queue) tail() int { return int(q.max % ExtentEntries) }

// index is the place of the extent of off in extents.
func (q *queue) index(off record.QueueOffset) int {
	return int(off/ExtentEntries - q.min/ExtentEntries)
}

// Append adds the next entry of a queue. off must be the queue's next offset: anything else means that
// the log, or what was derived from it, is damaged. After an error the queue is as before.
func (s *Store) Append(k Key, off record.QueueOffset, e Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[k]
	switch {
	case k.Queue < 0:
		return mqerr.New(mqerr.Corrupt, "topic %d has no queue %d", k.Topic, k.Queue)
	case q == nil && off != 0:
		return mqerr.New(mqerr.Corrupt, "topic %d queue %d: message with offset %d instead of 0", k.Topic, k.Queue, off)
	case q == nil:
		q = s.newQueueLocked(k)
	case off != q.max:
		return mqerr.New(mqerr.Corrupt, "topic %d queue %d: message with offset %d instead of %d", k.Topic, k.Queue, off, q.max)
	}
	return s.addLocked(q, &e)
}

// Start makes an empty queue begin at off, because the messages before it are no longer in the log. It
// does nothing if the queue has messages.
func (s *Store) Start(k Key, off record.QueueOffset) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off < 0 || k.Queue < 0 {
		return mqerr.New(mqerr.Corrupt, "topic %d queue %d cannot start at offset %d", k.Topic, k.Queue, off)
	}
	if s.queues[k] != nil || off == 0 {
		return nil
	}
	q := s.newQueueLocked(k)
	q.min = off - off%ExtentEntries
	q.max = q.min
	for q.max < off { // entries that nobody reads keep extents aligned with offsets
		if err := s.addLocked(q, &Entry{}); err != nil {
			q.min = q.max
			return err
		}
	}
	q.min = off
	return nil
}

// unknownLow stands for the lowest position of an extent of which nobody knows it: any may be in it.
const unknownLow record.Pos = -1

func (s *Store) newQueueLocked(k Key) *queue {
	q := &queue{key: k}
	s.queues[k] = q
	s.sorted = s.sorted && (len(s.order) == 0 || s.order[len(s.order)-1].key.Compare(k) < 0)
	s.order = append(s.order, q)
	return q
}

func (s *Store) addLocked(q *queue, e *Entry) error {
	n := len(q.buf)
	if cap(q.buf) < n+EntryBytes {
		if err := s.growLocked(q); err != nil {
			return err
		}
		n = len(q.buf)
	}
	if !q.warm {
		q.warm = true
		s.warm = append(s.warm, q)
	}
	q.active = true
	q.buf = q.buf[:n+EntryBytes]
	e.put(q.buf[n:])
	low := e.Pos
	if q.tail() > 0 && q.max > q.min {
		low = min(low, q.low)
	}
	if q.tail() == ExtentEntries-1 {
		if err := s.flushLocked(q, ExtentEntries); err != nil {
			q.buf = q.buf[:n]
			return err
		}
		q.buf, q.base, q.disk, q.crc = q.buf[:0], 0, 0, 0
		q.lows = append(q.lows, low)
	}
	q.low = low
	q.max++
	return nil
}

// growLocked makes room in a buffer: for two entries at first, for a whole extent at most. Buffers that
// were there for longest are written out to stay within TailBytes.
func (s *Store) growLocked(q *queue) error {
	size := min(max(2*cap(q.buf), 2*EntryBytes), (ExtentEntries-int(q.base))*EntryBytes)
	for s.tailBytes+size-cap(q.buf) > s.o.TailBytes && len(s.warm) > 0 {
		cold := s.warm[0]
		if cold.gone {
			s.warm = s.warm[1:]
			continue
		}
		if err := s.flushLocked(cold, cold.tail()); err != nil {
			return err
		}
		s.warm = s.warm[1:]
		s.dropBufferLocked(cold)
		if cold == q {
			size = 2 * EntryBytes
		}
	}
	size = min(size, (ExtentEntries-int(q.base))*EntryBytes)
	buf := make([]byte, len(q.buf), size)
	copy(buf, q.buf)
	s.tailBytes += size - cap(q.buf)
	q.buf = buf
	return nil
}

// dropBufferLocked forgets a buffer whose entries are all in the extent.
func (s *Store) dropBufferLocked(q *queue) {
	s.tailBytes -= cap(q.buf)
	q.buf, q.base, q.warm = nil, q.disk, false
}

// flushLocked writes the entries of the tail up to index n into its extent, and the head of the extent.
// Nothing is synced.
func (s *Store) flushLocked(q *queue, n int) error {
	if int(q.disk) == n {
		return nil
	}
	fresh := q.disk == 0
	data := q.buf[int(q.disk-q.base)*EntryBytes : (n-int(q.base))*EntryBytes]
	h := extentHead{key: q.key, first: q.max - q.max%ExtentEntries, count: n, crc: crc32.Update(q.crc, castagnoli, data)}
	h.put(s.scratch[:])
	x, err := s.writeLocked(q, fresh, data)
	if err != nil {
		return err
	}
	if fresh {
		q.extents = append(q.extents, x)
	}
	q.disk, q.crc = uint8(n), h.crc
	return nil
}

// writeLocked writes the head in s.scratch and the entries behind those on disk.
func (s *Store) writeLocked(q *queue, fresh bool, data []byte) (uint32, error) {
	if fresh {
		x, err := s.files.take()
		if err != nil {
			return 0, err
		}
		size := copy(s.scratch[extentHeader:], data) + extentHeader
		s.files.write(x, 0, s.scratch[:size])
		return x, nil
	}
	x := q.extents[len(q.extents)-1] // may be cached: what was read of it stays right
	s.files.write(x, extentHeader+int(q.disk)*EntryBytes, data)
	s.files.write(x, 0, s.scratch[:extentHeader])
	return x, nil
}
