package commitlog

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Read returns a record of the batch, which must be sealed. Its body is valid until the next Begin.
func (b *Batch) Read(pos record.Pos) (record.Record, error) {
	for i := len(b.pieces) - 1; i >= 0; i-- {
		p := b.pieces[i]
		if pos < p.pos {
			continue
		}
		lo := p.lo + int(pos-p.pos)
		if lo >= len(b.buf) || i < len(b.pieces)-1 && lo >= b.pieces[i+1].lo {
			break
		}
		return decode(b.buf[lo:])
	}
	return record.Record{}, mqerr.New(mqerr.NotFound, "position %d is not in the batch", pos)
}
