package engine

import (
	"context"
	"errors"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/snapshot"
)

// makeRoom sees that there is room for what a step writes before it writes anything, where space is low: a step
// that has to be given up in its middle costs room each time.
func (s *step) makeRoom(ctx context.Context) error {
	if !s.low {
		return nil
	}
	var failed error
	err := s.e.call(ctx, func(w *writer) {
		sections, err := w.views.base()
		if failed = err; err == nil {
			failed = w.snapshotFits(sections)
		}
	})
	if err == nil {
		err = failed
	}
	return err
}

// snapshotFits tells whether the SNAPSHOT of a state has room.
func (w *writer) snapshotFits(sections []checkpoint.Section) error {
	size := 0
	for i := range sections {
		size += int(sections[i].Len()) + chunkBytes
	}
	chunk := w.e.chunk()
	if size += size / chunk * chunkBytes; !w.hasSpaceFor(space.Retention, size, 2*min(size, chunk)) {
		return w.noSpace(space.Retention)
	}
	return nil
}

// chunk is how large the body of a chunk of a SNAPSHOT is at most.
func (e *Engine) chunk() int { return min(snapshot.BodyBytes, e.log.MaxBody()/16) }

// chunkBytes is more than a chunk of a SNAPSHOT takes beside its data.
const chunkBytes = 256

// snapshot writes a state as SNAPSHOT records, one a turn, all of them or none.
func (s *step) snapshot(ctx context.Context, state *snapState) error {
	var failed error
	if err := s.e.call(ctx, func(w *writer) { failed = w.snapshotFits(state.sections) }); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	for c := range snapshot.Chunks(state.at, state.sections, s.e.chunk()) {
		var failed error
		err := s.e.call(ctx, func(w *writer) {
			size := record.SnapshotSize(c)
			if !w.hasSpace(space.Retention, size+record.HeaderSize) {
				failed = w.noSpace(space.Retention)
				return
			}
			w.put(record.TypeSnapshot, size, func(body []byte) { record.PutSnapshot(body, c) })
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
