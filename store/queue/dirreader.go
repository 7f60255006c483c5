package queue

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// reader decodes a directory. After an error its methods return zero.
type reader struct {
	b       []byte
	err     error
	list    []*file // extents are marked as they are met
	perFile uint32
	last    *queue
	extent  int64
	lows    bool // the directory has lowest positions
	low     record.Pos
}

// Bounds that keep sums far from overflow.
const (
	maxOffset = 1 << 60
	maxPos    = 1 << 62
	maxFiles  = 1 << 31
)

func (r *reader) head() (queues int, err error) {
	version, entries, perFile, n := r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	switch {
	case r.err != nil:
		return 0, r.err
	case version == 0 || version > directoryVersion:
		return 0, mqerr.New(mqerr.Unsupported, "queue directory of version %d, this release knows up to %d", version, directoryVersion)
	case entries != ExtentEntries || (perFile != uint64(r.perFile) && n > 0):
		return 0, mqerr.New(mqerr.Corrupt, "queue directory: %d entries per extent, %d extents per file", entries, perFile)
	case n > uint64(len(r.b))/4:
		return 0, mqerr.New(mqerr.Corrupt, "queue directory: %d queues in %d bytes", n, len(r.b))
	}
	r.lows = version > 1
	return int(n), nil
}

func (r *reader) queue() *queue {
	q := r.bounds()
	if q == nil {
		return nil
	}
	if q.tail() > 0 {
		q.base, q.disk = uint8(q.tail()), uint8(q.tail())
		q.crc = r.uint32()
		q.low = r.lowest()
	}
	r.extents(q)
	if full := q.index(q.max); r.err == nil && full > 0 {
		q.lows = make([]record.Pos, full)
		for i := range q.lows {
			q.lows[i] = r.lowest()
		}
	}
	return q
}

// bounds reads the name and the bounds of a queue, nil if they are not right.
func (r *reader) bounds() *queue {
	topic, id, lo, n := r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	if r.last != nil {
		topic += uint64(r.last.key.Topic)
	}
	if topic > 1<<32-1 || id > 1<<31-1 || lo > maxOffset || n > maxOffset {
		r.fail("topic %d queue %d from %d has %d entries", topic, id, lo, n)
		return nil
	}
	q := &queue{key: Key{Topic: record.TopicID(topic), Queue: record.QueueID(id)}, min: record.QueueOffset(lo), max: record.QueueOffset(lo + n)}
	if r.last != nil && r.last.key.Compare(q.key) >= 0 {
		r.fail("topic %d queue %d stands behind topic %d queue %d", topic, id, r.last.key.Topic, r.last.key.Queue)
		return nil
	}
	r.last = q
	return q
}

// lowest reads the lowest position of an extent.
func (r *reader) lowest() record.Pos {
	if !r.lows {
		return unknownLow
	}
	// Both are far from the ends of the range: the sum of two is no overflow.
	gap := r.varint()
	if gap > maxPos || gap < -maxPos || r.low+record.Pos(gap) < unknownLow || r.low+record.Pos(gap) > maxPos {
		r.fail("an extent has messages from %d on", r.low)
		return unknownLow
	}
	r.low += record.Pos(gap)
	return r.low
}

func (r *reader) extents(q *queue) {
	n := q.index(q.max + ExtentEntries - 1)
	if n > len(r.b) {
		r.fail("%d extents in %d bytes", n, len(r.b))
	}
	if r.err != nil || n == 0 {
		return
	}
	q.extents = make([]uint32, n)
	for i := range q.extents {
		r.extent += r.varint()
		file := r.file(r.extent)
		if file == nil {
			r.fail("topic %d queue %d: there is no extent %d", q.key.Topic, q.key.Queue, r.extent)
		}
		r.mark(file, r.extent)
		if r.err != nil {
			return
		}
		q.extents[i] = uint32(r.extent)
	}
}

// file is that of an extent, nil if it is not there.
func (r *reader) file(x int64) *file {
	if n := x / int64(r.perFile); x >= 0 && n < int64(len(r.list)) {
		return r.list[n]
	}
	return nil
}

func (r *reader) mark(v *file, x int64) {
	if r.err != nil {
		return
	}
	if at := uint32(x % int64(r.perFile)); !v.has(at) {
		v.mark(at)
		return
	}
	r.fail("extent %d is named twice", x)
}

// retired reads the runs of given up extents. Files that hold nothing else may have been removed since.
func (r *reader) retired() []run {
	var runs []run
	for range r.uvarint() {
		r.extent += r.varint()
		n := r.uvarint()
		if limit := int64(r.perFile) * maxFiles; r.extent < 0 || r.extent > limit || n > maxOffset || r.extent+int64(n) > limit {
			r.fail("%d retired extents from %d", n, r.extent)
		}
		if r.err != nil {
			return nil
		}
		runs = append(runs, r.retire(r.extent, int64(n))...)
	}
	return runs
}

// retire marks the part of a run that is in files.
func (r *reader) retire(first, n int64) []run {
	var runs []run
	end := min(first+n, int64(len(r.list))*int64(r.perFile))
	for x := first; x < end && r.err == nil; {
		next := min(end, x-x%int64(r.perFile)+int64(r.perFile)) // end of the part in one file
		if v := r.file(x); v != nil {
			for i := x; i < next; i++ {
				r.mark(v, i)
			}
			runs = append(runs, run{first: uint32(x), n: uint32(next - x)})
		}
		x = next
	}
	return runs
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = mqerr.New(mqerr.Corrupt, "queue directory: "+format, args...)
	}
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if !r.skip(n) {
		return 0
	}
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if !r.skip(n) {
		return 0
	}
	return v
}

func (r *reader) uint32() uint32 {
	if len(r.b) < 4 {
		r.skip(0)
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.skip(4)
	return v
}

// skip moves on by n bytes; false if nothing could be decoded there.
func (r *reader) skip(n int) bool {
	if n <= 0 || r.err != nil {
		r.fail("cut off")
		return false
	}
	r.b = r.b[n:]
	return true
}
