package queue

import (
	"errors"
	"hash/crc32"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// An extent that cannot be read costs nothing but time: the log says what was in it. Who meets one gets a Damage,
// looks the entries up in the log, and gives them to Mend, which puts them into another extent. Queues and offsets stay
// as they are, and so does what a checkpoint says of them.

// Damage is the error of a read that met an extent which cannot be read or holds something else than it should. Its
// kind is that of the cause: Corrupt, or what the disk said.
type Damage struct {
	Key   Key
	First record.QueueOffset // of the extent
	err   error
}

func (d *Damage) Error() string { return d.err.Error() }

// Unwrap returns the cause.
func (d *Damage) Unwrap() error { return d.err }

// DamageOf finds the Damage in an error.
func DamageOf(err error) (*Damage, bool) { return errors.AsType[*Damage](err) }

// damaged makes the error of a read of an extent a Damage, unless it says that a later release wrote it.
func (s *Store) damaged(want *extentHead, err error) error {
	if err == nil || mqerr.Is(err, mqerr.Unsupported) {
		return err
	}
	d := &Damage{Key: want.key, First: want.first, err: err}
	if tell := s.watch.Load(); tell != nil {
		(*tell)(*d)
	}
	return d
}

// Watch has fn told of each extent that a read could not use. fn must not call the store and not wait.
func (s *Store) Watch(fn func(Damage)) { s.watch.Store(&fn) }

// Part is offsets [Lo, Hi) of a queue within one extent.
type Part struct{ Lo, Hi record.QueueOffset }

// Unreadable looks at so many extents of a queue, from that of an offset on, and returns the parts that cannot be
// read. It reads the files, whatever is cached.
func (s *Store) Unreadable(k Key, from record.QueueOffset, extents int) []Part {
	var parts []Part
	data := make([]byte, ExtentBytes)
	for first := from - from%ExtentEntries; extents > 0; first, extents = first+ExtentEntries, extents-1 {
		p, bad, more := s.unreadable(k, first, data)
		if bad {
			parts = append(parts, p)
		}
		if !more {
			break
		}
	}
	return parts
}

func (s *Store) unreadable(k Key, first record.QueueOffset, data []byte) (p Part, bad, more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	q := s.queues[k]
	if q == nil || first >= q.max {
		return p, false, false
	}
	p = q.stored(first)
	if p.Lo >= p.Hi {
		return p, false, true
	}
	want := q.head(first)
	return p, s.files.read(q.extents[q.index(first)], data, &want) != nil, true
}

// stored is the part of the extent at first that is read from a file.
func (q *queue) stored(first record.QueueOffset) Part {
	p := Part{Lo: max(first, q.min), Hi: first + ExtentEntries}
	if p.Hi > q.max {
		p.Hi = first + record.QueueOffset(q.base)
	}
	return p
}

// head is what the extent at first should say in its file.
func (q *queue) head(first record.QueueOffset) extentHead {
	h := extentHead{key: q.key, first: first, count: ExtentEntries}
	if first+ExtentEntries > q.max { // the tail
		h.count, h.crc = int(q.disk), q.crc
	}
	return h
}

// Mend puts entries in the place of a part that Unreadable returned. It is false if the queue has changed meanwhile
// so that they are not enough; Corrupt says that they are not what was there, which is looked at unless some are known
// to be others. It may be called from anywhere.
func (s *Store) Mend(k Key, p Part, entries []Entry, others bool) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, first := s.queues[k], p.Lo-p.Lo%ExtentEntries
	if q == nil || p.Lo >= q.max {
		return true, nil // deleted
	}
	now := q.stored(first)
	switch {
	case now.Lo >= now.Hi:
		return true, nil
	case now.Lo < p.Lo || now.Hi != p.Hi || len(entries) != int(p.Hi-p.Lo):
		return false, nil
	}
	data := make([]byte, ExtentEntries*EntryBytes) // what is not read any more stays zero
	for off := now.Lo; off < now.Hi; off++ {
		entries[off-p.Lo].put(data[int(off-first)*EntryBytes:])
	}
	if first+ExtentEntries > q.max {
		return true, s.mendTailLocked(q, now.Lo == first && !others, data)
	}
	h := q.head(first)
	h.crc = crc32.Checksum(data, castagnoli)
	x, err := s.files.take()
	if err != nil {
		return false, err
	}
	h.put(s.scratch[:])
	copy(s.scratch[extentHeader:], data)
	s.files.write(x, 0, s.scratch[:extentHeader+len(data)])
	i := q.index(first)
	s.retireLocked(q.extents[i])
	q.extents[i] = x
	return true, nil
}

// mendTailLocked takes the whole tail into the buffer, from where it goes to another extent. data has the entries that
// were in the old one; all says that they are all of these.
func (s *Store) mendTailLocked(q *queue, all bool, data []byte) error {
	buf := data[:q.tail()*EntryBytes]
	copy(buf[int(q.base)*EntryBytes:], q.buf)
	if sum := crc32.Checksum(buf[:int(q.disk)*EntryBytes], castagnoli); all && sum != q.crc {
		return mqerr.New(mqerr.Corrupt, "topic %d queue %d: the log says something else than the queue did of the offsets behind %d", q.key.Topic, q.key.Queue, q.max-record.QueueOffset(q.tail()))
	}
	s.tailBytes += cap(buf) - cap(q.buf)
	s.retireLocked(q.extents[len(q.extents)-1])
	q.extents = q.extents[:len(q.extents)-1]
	q.buf, q.base, q.disk, q.crc, q.active = buf, 0, 0, 0, true
	if !q.warm {
		q.warm = true
		s.warm = append(s.warm, q)
	}
	return nil
}
