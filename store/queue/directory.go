package queue

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// The directory, in uvarints unless said otherwise ("varint" is signed, both as in encoding/binary):
//
//	version (1), entries per extent, extents per file, number of queues
//	for each queue, sorted by topic and queue:
//	  topic minus the topic before
//	  queue
//	  min, max - min
//	  CRC32C of the tail's entries, 4 bytes little-endian; only if max % entries per extent > 0
//	  for each extent from that of min to that of max: varint, its number minus the one before (of any queue)
//	number of runs of extents that no queue has but the checkpoint before this one may name
//	for each run: varint, its first number minus the last number before; its length
const directoryVersion = 1

func (s *Store) appendDirectory(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, directoryVersion)
	dst = binary.AppendUvarint(dst, ExtentEntries)
	dst = binary.AppendUvarint(dst, uint64(s.files.perFile))
	dst = binary.AppendUvarint(dst, uint64(len(s.order)))
	topic, extent := record.TopicID(0), int64(0)
	for _, q := range s.order {
		dst = binary.AppendUvarint(dst, uint64(q.key.Topic-topic))
		dst = binary.AppendUvarint(dst, uint64(q.key.Queue))
		dst = binary.AppendUvarint(dst, uint64(q.min))
		dst = binary.AppendUvarint(dst, uint64(q.max-q.min))
		if q.tail() > 0 {
			dst = binary.LittleEndian.AppendUint32(dst, q.crc)
		}
		for _, x := range q.extents {
			dst = binary.AppendVarint(dst, int64(x)-extent)
			extent = int64(x)
		}
		topic = q.key.Topic
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.files.retired)))
	for _, r := range s.files.retired {
		dst = binary.AppendVarint(dst, int64(r.first)-extent)
		dst = binary.AppendUvarint(dst, uint64(r.n))
		extent = int64(r.first)
	}
	return dst
}

// Decode replaces all queues with those of a directory. What the extents hold beyond it is forgotten. On
// an error (Corrupt, or Unsupported for one of a later release) nothing has changed.
func (s *Store) Decode(b []byte) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := reader{b: b, list: s.files.blank(), perFile: s.files.perFile}
	n, err := r.head()
	if err != nil {
		return err
	}
	order := make([]*queue, 0, n)
	queues := make(map[Key]*queue, n)
	for range n {
		q := r.queue()
		if r.err != nil {
			return r.err
		}
		order = append(order, q)
		queues[q.key] = q
	}
	retired := r.retired()
	if len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return r.err
	}
	s.clearLocked()
	s.queues, s.order = queues, order
	s.files.list, s.files.hint, s.files.retired = r.list, 0, retired
	return nil
}

// blank is the list of files with every extent free.
func (f *files) blank() []*file {
	list := make([]*file, len(f.list))
	for n, v := range f.list {
		if v != nil {
			list[n] = newFile(v.File, f.perFile)
			list[n].dirty = v.dirty
		}
	}
	return list
}

// reader decodes a directory. After an error its methods return zero.
type reader struct {
	b       []byte
	err     error
	list    []*file // extents are marked as they are met
	perFile uint32
	last    *queue
	extent  int64
}

// Bounds that keep sums far from overflow.
const (
	maxOffset = 1 << 60
	maxFiles  = 1 << 31
)

func (r *reader) head() (queues int, err error) {
	version, entries, perFile, n := r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
	switch {
	case r.err != nil:
		return 0, r.err
	case version != directoryVersion:
		return 0, mqerr.New(mqerr.Unsupported, "queue directory of version %d, this release knows %d", version, directoryVersion)
	case entries != ExtentEntries || (perFile != uint64(r.perFile) && n > 0):
		return 0, mqerr.New(mqerr.Corrupt, "queue directory: %d entries per extent, %d extents per file", entries, perFile)
	case n > uint64(len(r.b))/4:
		return 0, mqerr.New(mqerr.Corrupt, "queue directory: %d queues in %d bytes", n, len(r.b))
	}
	return int(n), nil
}

func (r *reader) queue() *queue {
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
	if q.tail() > 0 {
		q.base, q.disk = uint8(q.tail()), uint8(q.tail())
		q.crc = r.uint32()
	}
	r.extents(q)
	return q
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
