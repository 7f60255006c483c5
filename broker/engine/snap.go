package engine

import (
	"context"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/snapshot"
)

// snapshot writes a state as SNAPSHOT records, one a turn.
func (s *step) snapshot(ctx context.Context, state *snapState) error {
	for c := range snapshot.Chunks(state.at, state.sections, min(snapshot.BodyBytes, s.e.log.MaxBody()/4)) {
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
