package engine

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// sectionEpochs is the section of a checkpoint with where each epoch of the log began.
const sectionEpochs = "epochs"

// epochs is the view that knows where each epoch began: at the end of the last record before, so a PAD that made
// room for its EPOCH record is in it. Epochs that lie in the deleted part of the log are forgotten.
type epochs struct {
	began []begun // epochs and positions rise
	end   record.Pos
}

type begun struct {
	epoch record.Epoch
	at    record.Pos
}

func (x *epochs) reset() { x.began, x.end = nil, 0 }

// newest is the epoch of the last record, 0 before the first one.
func (x *epochs) newest() record.Epoch {
	if n := len(x.began); n > 0 {
		return x.began[n-1].epoch
	}
	return 0
}

// take notes a record that stands behind end, but for a PAD.
func (x *epochs) take(r *record.Header) {
	if r.Epoch > x.newest() {
		x.began = append(x.began, begun{r.Epoch, x.end})
	}
	x.end = r.End()
}

// dropBelow forgets epochs that end at or below a position, but never the newest one.
func (x *epochs) dropBelow(pos record.Pos) {
	n := 0
	for n+1 < len(x.began) && x.began[n+1].at <= pos {
		n++
	}
	x.began = x.began[n:]
}

// encode is the section: a uvarint count, and for each epoch uvarints of epoch and position.
func (x *epochs) encode() []byte {
	b := binary.AppendUvarint(nil, uint64(len(x.began)))
	for _, e := range x.began {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(e.epoch)), uint64(e.at))
	}
	return b
}

func (x *epochs) decode(b []byte) error {
	x.reset()
	bad := mqerr.New(mqerr.Corrupt, "the section of epochs ends early, or does not rise")
	num := func() (v uint64, ok bool) {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<63-1 {
			return 0, false
		}
		b = b[n:]
		return v, true
	}
	n, ok := num()
	if !ok || n > uint64(len(b)) {
		return bad
	}
	for range n {
		epoch, is := num()
		at, also := num()
		if last := len(x.began) - 1; !is || !also || record.Epoch(epoch) <= x.newest() || last >= 0 && record.Pos(at) <= x.began[last].at {
			x.reset()
			return bad
		}
		x.began = append(x.began, begun{record.Epoch(epoch), record.Pos(at)})
	}
	if len(b) > 0 {
		x.reset()
		return bad
	}
	return nil
}

// index is the epochs of a log [first, end).
func (x *epochs) index(first, end record.Pos) (*replica.Index, error) {
	spans := make([]replica.Span, 0, len(x.began))
	for i, e := range x.began {
		to := end
		if i+1 < len(x.began) {
			to = x.began[i+1].at
		}
		if to <= first && i+1 < len(x.began) {
			continue
		}
		spans = append(spans, replica.Span{Epoch: e.epoch, Start: e.at, End: to})
	}
	return replica.Restore(first, end, spans)
}

// Epochs says where the epochs of the log began, up to its end. It is for the time between Open and Begin, before
// anybody appends. Files that a TRIM has given up, and that are still there, are no part of it.
func (e *Engine) Epochs() (*replica.Index, error) {
	x, first := &e.views.ahead, e.log.First()
	for _, s := range e.log.Segments() {
		if len(x.began) == 0 || x.began[0].at <= first {
			break
		}
		first = max(first, s.Base)
	}
	return x.index(first, e.log.Written())
}
