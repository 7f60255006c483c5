// Package snapshot is the state of all views as records of the log (record.Snapshot): it cuts sections into
// chunks, and finds and puts together the snapshot that a log without a usable checkpoint starts from.
//
// A snapshot is written behind the TRIM records of a position D, and stands for all records below its At. With it
// the log from D on is enough: the records of [D, At) say what the queues of the snapshot hold, those from At on
// bring it up to date. Its chunks count from 0 and are of one epoch; others may stand between them.
package snapshot

import (
	"iter"

	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// BodyBytes is how large the body of a chunk is at most, where the log takes that much.
const BodyBytes = 1 << 20

// Chunks are the records of a snapshot of sections at a position, in order, with bodies of at most limit bytes,
// which is large enough for the names. Data of a section that lies in one piece is not copied. A chunk is valid
// until the next one.
func Chunks(at record.Pos, sections []checkpoint.Section, limit int) iter.Seq[*record.Snapshot] {
	return func(yield func(*record.Snapshot) bool) {
		c := record.Snapshot{At: at}
		for i := range sections {
			s := &sections[i]
			c.View = []byte(s.Name)
			p := pieces{rest: append([][]byte{s.Data}, s.More...)}
			for first := true; first || !p.empty(); first = false {
				c.Data = nil
				c.Data = p.take(limit - record.SnapshotSize(&c))
				c.Last = i == len(sections)-1 && p.empty()
				if !yield(&c) {
					return
				}
				c.Chunk++
			}
		}
	}
}

// pieces are the data of a section that no chunk has yet.
type pieces struct {
	rest [][]byte
	buf  []byte
}

func (p *pieces) empty() bool {
	for len(p.rest) > 0 && len(p.rest[0]) == 0 {
		p.rest = p.rest[1:]
	}
	return len(p.rest) == 0
}

// take returns the next n bytes, or what is left.
func (p *pieces) take(n int) []byte {
	if n = max(n, 1); p.empty() {
		return nil
	}
	if first := p.rest[0]; len(first) >= n || len(p.rest) == 1 {
		n = min(n, len(first))
		p.rest[0] = first[n:]
		return first[:n:n]
	}
	for p.buf = p.buf[:0]; len(p.buf) < n && !p.empty(); {
		part := p.rest[0][:min(n-len(p.buf), len(p.rest[0]))]
		p.buf = append(p.buf, part...)
		p.rest[0] = p.rest[0][len(part):]
	}
	return p.buf
}
