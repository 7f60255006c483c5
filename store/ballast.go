package store

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/perigee-mq/perigee/internal/vfs"
)

// BallastName is a file of nothing that keeps space on the disk for the end of a step of retention: a checkpoint,
// and a file of the consume queues, without which no segment may be deleted. It is removed when such a checkpoint
// finds the disk full, and made again when there is room.
const BallastName = "ballast"

// ballast guards that file.
type ballast struct {
	mu   sync.Mutex
	size int64 // bytes of the file, 0 if there is none
	lent bool  // its space is in use for what it was kept for
}

// ballastShrink is how many times larger than needed the file may be before it is made smaller.
const ballastShrink = 4

// BallastNeed is how many bytes the ballast needs for a checkpoint of a number of bytes.
func (s *Store) BallastNeed(checkpoint int64) int64 {
	return checkpoint + s.queues.FileBytes() + min(s.log.SegmentBytes()/8, ballastSlack)
}

// ballastSlack is for names and whatever else is written meanwhile, 1/8 of a segment if that is less.
const ballastSlack = 8 << 20

// KeepBallast sees that there is a ballast of need bytes or more. An error says why there is not: the disk is full
// (vfs.IsFull), or something else is wrong with it. It costs little when all is well and may be called each second.
func (s *Store) KeepBallast(need int64) error {
	b := &s.ballast
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lent {
		return errBallastLent
	}
	if b.size == 0 { // a former process may have left one
		info, err := s.o.FS.Stat(s.path(BallastName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("ballast: %w", err)
		}
		b.size = info.Size
	}
	if b.size >= need && b.size <= ballastShrink*need {
		return nil
	}
	size := need + need/4 // it is not to be made larger all the time
	if u, err := s.Usage(); err == nil && int64(min(u.Free, 1<<62)) < size+s.log.SegmentBytes() {
		if b.size >= need-need/4 {
			return nil // nearly enough, and the log needs what there is for its next file
		}
		size = need
	}
	err := s.resizeBallast(size)
	if err != nil && b.size >= need {
		return nil // it could not be made smaller
	}
	return err
}

var errBallastLent = errors.New("the ballast is in use")

// resizeBallast makes the file so large. One that cannot grow stays as it is.
func (s *Store) resizeBallast(size int64) error {
	b := &s.ballast
	open := s.o.FS.Open
	if b.size == 0 {
		open = s.o.FS.Create
	}
	f, err := open(s.path(BallastName))
	if err != nil {
		return fmt.Errorf("ballast: %w", err)
	}
	if size < b.size {
		err = f.Truncate(size)
	} else if err = f.Allocate(size); err != nil {
		err = errors.Join(err, f.Truncate(b.size)) // a part of it may be there
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		b.size = size
		return nil
	}
	if b.size == 0 {
		err = errors.Join(err, s.o.FS.Remove(s.path(BallastName)))
	}
	return fmt.Errorf("ballast: %w", err)
}

// LendBallast gives the space of the ballast to whoever finds the disk full, false if there is none. Until
// BallastBack nobody makes it again.
func (s *Store) LendBallast() bool {
	b := &s.ballast
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.size == 0 || b.lent || s.o.FS.Remove(s.path(BallastName)) != nil {
		return false
	}
	b.size, b.lent = 0, true
	return true
}

// BallastBack says that the space that was lent is not needed any more.
func (s *Store) BallastBack() {
	s.ballast.mu.Lock()
	defer s.ballast.mu.Unlock()
	s.ballast.lent = false
}

// Ballast is how many bytes of the disk the ballast keeps, 0 if there is none.
func (s *Store) Ballast() int64 {
	s.ballast.mu.Lock()
	defer s.ballast.mu.Unlock()
	return s.ballast.size
}

// BallastLent tells whether its space is in use.
func (s *Store) BallastLent() bool {
	s.ballast.mu.Lock()
	defer s.ballast.mu.Unlock()
	return s.ballast.lent
}

// IsFull tells whether an error of KeepBallast, or of a checkpoint, says that the disk has no space left.
func IsFull(err error) bool { return vfs.IsFull(err) || errors.Is(err, errBallastLent) }
