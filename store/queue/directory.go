package queue

import (
	"encoding/binary"

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
//	  varint, lowest position of a message in the tail minus the lowest position written before; likewise
//	  for each extent from that of min to that of max: varint, its number minus the one before (of any queue)
//	  for each of them that is full: varint, lowest position of a message in it minus the one written before
//	number of runs of extents that no queue has but the checkpoint before this one may name
//	for each run: varint, its first number minus the last number before; its length
//
// A lowest position may be lower than what is still read of an extent; -1 is one that is not known. Version 1
// had none: it is read, and all are unknown.
const directoryVersion = 2

func (s *Store) appendDirectory(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, directoryVersion)
	dst = binary.AppendUvarint(dst, ExtentEntries)
	dst = binary.AppendUvarint(dst, uint64(s.files.perFile))
	dst = binary.AppendUvarint(dst, uint64(len(s.order)))
	topic, extent, low := record.TopicID(0), int64(0), record.Pos(0)
	for _, q := range s.order {
		dst = binary.AppendUvarint(dst, uint64(q.key.Topic-topic))
		dst = binary.AppendUvarint(dst, uint64(q.key.Queue))
		dst = binary.AppendUvarint(dst, uint64(q.min))
		dst = binary.AppendUvarint(dst, uint64(q.max-q.min))
		if q.tail() > 0 {
			dst = binary.LittleEndian.AppendUint32(dst, q.crc)
			dst = binary.AppendVarint(dst, int64(q.low-low))
			low = q.low
		}
		for _, x := range q.extents {
			dst = binary.AppendVarint(dst, int64(x)-extent)
			extent = int64(x)
		}
		for _, p := range q.lows {
			dst = binary.AppendVarint(dst, int64(p-low))
			low = p
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
	s.files.list, s.files.hint, s.files.retired, s.files.unwritten = r.list, 0, retired, nil
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
