package queue

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Bounds are the offsets of one queue: those of [Min, Max) can be read.
type Bounds struct {
	Key
	Min, Max record.QueueOffset
}

// The bounds of all queues, in uvarints: version (1), number of queues, and for each, sorted by topic and
// queue: topic minus the topic before, queue, min, max - min.
const boundsVersion = 1

// EncodeBounds appends the bounds of all queues to dst, for a snapshot in the log: the entries are not in it,
// the log itself has them. Equal histories give equal bytes. It is a call of the owner.
func (s *Store) EncodeBounds(dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sortLocked()
	dst = binary.AppendUvarint(dst, boundsVersion)
	dst = binary.AppendUvarint(dst, uint64(len(s.order)))
	topic := record.TopicID(0)
	for _, q := range s.order {
		dst = binary.AppendUvarint(dst, uint64(q.key.Topic-topic))
		dst = binary.AppendUvarint(dst, uint64(q.key.Queue))
		dst = binary.AppendUvarint(dst, uint64(q.min))
		dst = binary.AppendUvarint(dst, uint64(q.max-q.min))
		topic = q.key.Topic
	}
	return dst
}

// DecodeBounds reads what EncodeBounds wrote: sorted, each queue once. Anything else is Corrupt, what a later
// release wrote Unsupported.
func DecodeBounds(b []byte) ([]Bounds, error) {
	r := reader{b: b}
	version, n := r.uvarint(), r.uvarint()
	switch {
	case r.err != nil:
		return nil, r.err
	case version != boundsVersion:
		return nil, mqerr.New(mqerr.Unsupported, "bounds of queues of version %d, this release knows %d", version, boundsVersion)
	case n > uint64(len(r.b))/4:
		return nil, mqerr.New(mqerr.Corrupt, "bounds of %d queues in %d bytes", n, len(r.b))
	}
	all := make([]Bounds, 0, n)
	for range n {
		q := r.bounds()
		if r.err != nil {
			return nil, r.err
		}
		all = append(all, Bounds{Key: q.key, Min: q.min, Max: q.max})
	}
	if len(r.b) > 0 {
		return nil, mqerr.New(mqerr.Corrupt, "bounds of queues: %d bytes too many", len(r.b))
	}
	return all, nil
}
