package redriven

import (
	"encoding/binary"
	"math"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Decode replaces the table with an encoded one. Anything that Encode does not write is Corrupt, and
// leaves the table as it was; a later version is Unsupported.
func (t *Table) Decode(b []byte) error {
	if len(b) == 0 || b[0] > version {
		return mqerr.New(mqerr.Unsupported, "table of moved dead letters: this release knows version %d only: start the release that wrote it", version)
	}
	r := reader{b: b[1:], ok: b[0] == version}
	fresh := New()
	last := Key{}
	for n := r.upTo(math.MaxInt64); n > 0 && r.ok; n-- {
		k := Key{Topic: record.TopicID(r.upTo(math.MaxUint32)), Queue: record.QueueID(r.upTo(math.MaxInt32))}
		r.must(len(fresh.queues) == 0 || last.compare(k) < 0)
		last = k
		fresh.queues[k] = r.spans()
	}
	r.must(len(r.b) == 0)
	if !r.ok {
		return mqerr.New(mqerr.Corrupt, "table of moved dead letters: damaged")
	}
	t.queues = fresh.queues
	return nil
}

// reader reads numbers. After the first fault ok is false and it returns zeros.
type reader struct {
	b  []byte
	ok bool
}

func (r *reader) must(is bool) { r.ok = r.ok && is }

func (r *reader) upTo(bound int64) int64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(bound) || n > 1 && r.b[n-1] == 0 || !r.ok {
		r.ok = false
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

func (r *reader) spans() []span {
	var spans []span
	last := int64(0)
	n := r.upTo(math.MaxInt64)
	r.must(n > 0)
	for ; n > 0 && r.ok; n-- {
		gap := r.upTo(math.MaxInt64 - last)
		from := last + gap
		length := r.upTo(math.MaxInt64 - from)
		r.must(length > 0 && (gap > 0 || len(spans) == 0))
		last = from + length
		spans = append(spans, span{from, last})
	}
	return spans
}
