package store

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/snapshot"
)

// loadCheckpoint takes the newest whole checkpoint. One that stands for a position before the log begins is of no
// use if the log has a snapshot to start from: it is set aside like a damaged one.
func (s *Store) loadCheckpoint() (err error) {
	if s.checkpoint, s.aside, err = checkpoint.Load(s.o.FS, s.path(CheckpointDir)); err != nil || s.checkpoint == nil {
		return err
	}
	s.saved = s.checkpoint.Pos
	if first := s.log.First(); s.saved < first {
		if _, err := s.FindSnapshot(); err != nil {
			return nil // files are missing, perhaps: the recovery says so
		}
		s.aside = append(s.aside, checkpoint.Damaged{
			Name: checkpoint.Name(s.saved), Err: mqerr.New(mqerr.Corrupt, "it stands for position %d, and the log begins at %d", s.saved, first),
		})
		s.checkpoint, s.saved = nil, -1
	}
	return nil
}

// FindSnapshot returns the snapshot in the log that the views can be rebuilt with, where there is no checkpoint
// that can be used and the log begins after 0. It reads the log up to there. None is an error of kind Corrupt
// that says what to do. The first call keeps its result for the second one, which takes it.
func (s *Store) FindSnapshot() (*snapshot.Found, error) {
	if f := s.snapshot; f != nil {
		s.snapshot = nil
		return f, nil
	}
	first := s.log.First()
	f, err := snapshot.Find(first, s.log.Scan)
	if f != nil {
		s.snapshot = f
		return f, nil
	}
	if err != nil && !mqerr.Is(err, mqerr.Corrupt) {
		return nil, err
	}
	if err == nil {
		err = mqerr.New(mqerr.Corrupt, "it was read to its end")
	}
	return nil, mqerr.New(mqerr.Corrupt, "the log %s begins at position %d, no checkpoint can be used, and there is no complete snapshot to start from: bring the folder %s back from a copy of this directory: %w",
		s.path(LogDir), first, s.path(CheckpointDir), err)
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
