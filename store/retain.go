package store

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

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
