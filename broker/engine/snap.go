package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// chunkBytes is the most data of one SNAPSHOT record.
const chunkBytes = 1 << 20

// snapshot writes a state as SNAPSHOT records, one a turn.
func (s *step) snapshot(ctx context.Context, state *snapState) error {
	most := min(chunkBytes, s.e.log.MaxBody()/4)
	chunks := chunksOf(state, most)
	for i := range chunks {
		var failed error
		err := s.e.call(ctx, func(w *writer) {
			size := record.SnapshotSize(&chunks[i])
			if !w.hasSpace(space.Retention, size+record.HeaderSize) {
				failed = w.noSpace(space.Retention)
				return
			}
			w.put(record.TypeSnapshot, size, func(body []byte) { record.PutSnapshot(body, &chunks[i]) })
			s.snap += int64(size) + record.HeaderSize
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
	}
	s.k.note(func(t *Retention) { t.Snapshot, t.SnapAt = s.snap, state.at })
	return nil
}

// chunksOf cuts a state into chunks with at most so many bytes of data.
func chunksOf(state *snapState, most int) []record.Snapshot {
	var chunks []record.Snapshot
	add := func(view string, data []byte) {
		chunks = append(chunks, record.Snapshot{At: state.at, Chunk: uint32(len(chunks)), View: []byte(view), Data: data})
	}
	for i := range state.sections {
		sec := &state.sections[i]
		var rest []byte
		for _, piece := range append([][]byte{sec.Data}, sec.More...) {
			for len(piece) > 0 {
				n := min(len(piece), most-len(rest))
				if rest = append(rest, piece[:n]...); len(rest) == most {
					add(sec.Name, rest)
					rest = nil
				}
				piece = piece[n:]
			}
		}
		if len(rest) > 0 || sec.Len() == 0 {
			add(sec.Name, rest)
		}
	}
	chunks[len(chunks)-1].Last = true
	return chunks
}

// assembly puts the chunks of SNAPSHOT records together again.
type assembly struct {
	at       record.Pos
	epoch    record.Epoch
	next     uint32
	sections []checkpoint.Section
}

// add takes a record and returns the state that it completes, nil if it does not.
func (a *assembly) add(r *record.Record) (*checkpoint.Checkpoint, error) {
	p, err := record.DecodeSnapshot(r.Body)
	if err != nil {
		return nil, err
	}
	switch {
	case p.Chunk == 0:
		*a = assembly{at: p.At, epoch: r.Epoch}
	case p.At != a.at || r.Epoch != a.epoch || p.Chunk != a.next:
		*a = assembly{at: -1} // its beginning was deleted, or another one has begun
		return nil, nil
	}
	a.next++
	if n := len(a.sections); n == 0 || a.sections[n-1].Name != string(p.View) {
		a.sections = append(a.sections, checkpoint.Section{Name: string(p.View)})
	}
	last := &a.sections[len(a.sections)-1]
	last.Data = append(last.Data, p.Data...)
	if !p.Last {
		return nil, nil
	}
	c := &checkpoint.Checkpoint{Pos: a.at, Sections: a.sections}
	*a = assembly{at: -1}
	if c.Pos > r.Pos {
		return nil, mqerr.New(mqerr.Corrupt, "SNAPSHOT record at %d is of the later position %d", r.Pos, c.Pos)
	}
	return c, nil
}
