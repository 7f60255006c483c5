package store

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// loadCheckpoint takes the newest whole checkpoint. One that stands for a position before the log begins is of no
// use, since what comes after it is gone: it is set aside like a damaged one.
func (s *Store) loadCheckpoint() (err error) {
	if s.checkpoint, s.aside, err = checkpoint.Load(s.o.FS, s.path(CheckpointDir)); err != nil || s.checkpoint == nil {
		return err
	}
	s.saved = s.checkpoint.Pos
	if first := s.log.First(); s.saved < first {
		s.aside = append(s.aside, checkpoint.Damaged{
			Name: checkpoint.Name(s.saved), Err: mqerr.New(mqerr.Corrupt, "it stands for position %d, and the log begins at %d", s.saved, first),
		})
		s.checkpoint, s.saved = nil, -1
	}
	return nil
}

// DropBefore deletes the segments of the log that end at or below pos (commitlog.Log.DropBefore). It refuses
// unless a checkpoint that stands for pos or later was saved: what comes before it no start needs any more.
func (s *Store) DropBefore(pos record.Pos) (bytes int64, err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.distrusted || s.saved < pos {
		return 0, mqerr.New(mqerr.Internal, "the log %s was to be deleted up to position %d, and no checkpoint stands for that or later", s.path(LogDir), pos)
	}
	return s.log.DropBefore(pos)
}
