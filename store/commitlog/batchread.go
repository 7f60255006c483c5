package commitlog

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Read returns a record of the batch, which must be sealed. Its body is valid until the next Begin.
func (b *Batch) Read(pos record.Pos) (record.Record, error) {
	for i, p := range slices.Backward(b.pieces) {
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
