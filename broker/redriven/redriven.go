// Package redriven is the table of dead letters that were moved back to where they came from, or
// elsewhere: they are done for everybody. It is a view of the DEAD records of the log.
//
// It is a pure core: the same records give the same table, byte for byte (Encode). Letters are moved in
// their order, so what is done of a queue is a few ranges of offsets, one for each gap.
package redriven

import (
	"encoding/binary"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Key names a queue of a dead-letter topic.
type Key struct {
	Topic record.TopicID
	Queue record.QueueID
}

// span is the offsets [from, to), at least one.
type span struct{ from, to int64 }

// Table has what was moved, by queue: spans that rise and do not touch each other. It is not safe for
// concurrent use.
type Table struct{ queues map[Key][]span }

// New returns an empty table.
func New() *Table { return &Table{queues: map[Key][]span{}} }

// find is the index of the first span that ends behind off.
func find(spans []span, off int64) int {
	i, _ := slices.BinarySearchFunc(spans, off, func(s span, off int64) int {
		if s.to <= off {
			return -1
		}
		return 1
	})
	return i
}

// Has tells whether a letter was moved.
func (t *Table) Has(k Key, off record.QueueOffset) bool {
	spans := t.queues[k]
	i := find(spans, int64(off))
	return i < len(spans) && spans[i].from <= int64(off)
}

// Empty tells whether no letter was moved.
func (t *Table) Empty() bool { return len(t.queues) == 0 }

// Count is how many letters of [lo, hi) were moved.
func (t *Table) Count(k Key, lo, hi record.QueueOffset) int64 {
	n := int64(0)
	spans := t.queues[k]
	for i := find(spans, int64(lo)); i < len(spans) && spans[i].from < int64(hi); i++ {
		n += min(spans[i].to, int64(hi)) - max(spans[i].from, int64(lo))
	}
	return n
}

// Next is the first offset from off on that was not moved.
func (t *Table) Next(k Key, off record.QueueOffset) record.QueueOffset {
	spans := t.queues[k]
	if i := find(spans, int64(off)); i < len(spans) && spans[i].from <= int64(off) {
		return record.QueueOffset(spans[i].to)
	}
	return off
}

// Add notes that a letter was moved. One that was moved before is Corrupt: nothing is moved twice.
func (t *Table) Add(k Key, off record.QueueOffset) error {
	if off < 0 || t.Has(k, off) {
		return mqerr.New(mqerr.Corrupt, "dead letter %d of topic %d queue %d is moved twice, or is none", off, k.Topic, k.Queue)
	}
	at, spans := int64(off), t.queues[k]
	i := find(spans, at)
	before := i > 0 && spans[i-1].to == at
	behind := i < len(spans) && spans[i].from == at+1
	switch {
	case before && behind:
		spans[i-1].to = spans[i].to
		spans = slices.Delete(spans, i, i+1)
	case before:
		spans[i-1].to++
	case behind:
		spans[i].from--
	default:
		spans = slices.Insert(spans, i, span{at, at + 1})
	}
	t.queues[k] = spans
	return nil
}

// DropTopic forgets a deleted topic.
func (t *Table) DropTopic(id record.TopicID) {
	for k := range t.queues {
		if k.Topic == id {
			delete(t.queues, k)
		}
	}
}

// Forget drops what was moved below off, where the queue begins now.
func (t *Table) Forget(k Key, off record.QueueOffset) {
	spans := t.queues[k]
	i := find(spans, int64(off))
	if spans = slices.Delete(spans, 0, i); len(spans) == 0 {
		delete(t.queues, k)
		return
	}
	spans[0].from = max(spans[0].from, int64(off))
	t.queues[k] = spans
}

func (t *Table) keys() []Key {
	keys := make([]Key, 0, len(t.queues))
	for k := range t.queues {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Key.compare)
	return keys
}

func (k Key) compare(o Key) int {
	if k.Topic != o.Topic {
		return int(int64(k.Topic) - int64(o.Topic))
	}
	return int(int64(k.Queue) - int64(o.Queue))
}

// version is the version of the encoded table:
//
//	u8       version
//	uvarint  number of queues, then each, by topic and queue:
//	           uvarint topic, queue, number of spans, then each, in order:
//	             uvarint letters since the span before (since 0 at first), letters in it
const version = 1

// Encode appends the table to dst: equal tables give equal bytes.
func (t *Table) Encode(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, version), uint64(len(t.queues)))
	for _, k := range t.keys() {
		spans := t.queues[k]
		dst = binary.AppendUvarint(dst, uint64(k.Topic))
		dst = binary.AppendUvarint(dst, uint64(uint32(k.Queue)))
		dst = binary.AppendUvarint(dst, uint64(len(spans)))
		last := int64(0)
		for _, s := range spans {
			dst = binary.AppendUvarint(dst, uint64(s.from-last))
			dst = binary.AppendUvarint(dst, uint64(s.to-s.from))
			last = s.to
		}
	}
	return dst
}
