package commitlog

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// Room is how many bytes can be appended into files that are there already. It grows when the next
// segment is prepared and stays low if that fails, as on a full disk: refuse before it is used up.
func (l *Log) Room() int64 {
	w := l.watch()
	return max(0, int64(w.reach)-l.written.Load())
}

// watched is what those who watch the space are told.
type watched struct {
	reach record.Pos // end of the files that are there
	stuck error
}

// watch tells what is true now. Who takes the next file holds the lock for as long as the disk needs to make it: meanwhile it tells
// what was true before.
func (l *Log) watch() *watched {
	was := l.watched.Load()
	if was == nil {
		l.mu.Lock()
	} else if !l.mu.TryLock() {
		return was
	}
	defer l.mu.Unlock()
	w := &watched{}
	if l.prep != nil {
		w.reach, w.stuck = l.reach(), l.prep.stuck()
	}
	l.watched.Store(w)
	return w
}

// SegmentBytes is the size of one file.
func (l *Log) SegmentBytes() int64 { return l.o.SegmentBytes }

// Reach is the end of the files that are there for appends, of which records may leave a part unused where
// one file ends: a record that does not fit goes to the next. If the end is below want, Reach waits for the
// files up to there; it returns less only if one cannot be made now. It is a call of the goroutine that
// appends: up to there Write waits for nothing.
func (l *Log) Reach(want record.Pos) record.Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prep == nil {
		return l.Written()
	}
	for l.reach() < want {
		if l.fetch() != nil {
			break
		}
	}
	return l.reach()
}

// Stuck is why the next file cannot be made now, nil if it is there or being made.
func (l *Log) Stuck() error { return l.watch().stuck }

// Hold says whether further files are to be made. While they are not, what is there can be filled. It waits for one
// that is being made: when it has returned, the log takes no more of the disk.
func (l *Log) Hold(on bool) {
	l.gate.hold.Store(on)
	if !on {
		l.gate.grant.Store(false)
		return
	}
	l.gate.making.Lock()
	defer l.gate.making.Unlock()
}

// Grant lets one further file be made while the log is held, soon; more often than that it does nothing.
func (l *Log) Grant() { l.gate.grant.Store(l.gate.hold.Load()) }

// reach is the end of the files that are there.
func (l *Log) reach() record.Pos {
	end := l.covered()
	if l.prep.done.Load() {
		end += record.Pos(l.o.SegmentBytes)
	}
	return end
}

// covered is the end of the files that this goroutine has.
func (l *Log) covered() record.Pos {
	if n := len(l.spare); n > 0 {
		return l.spare[n-1].End()
	}
	return record.Pos(l.tail.Load())
}

// fetch takes the prepared segment and asks for the one after it.
func (l *Log) fetch() error {
	next, err := l.prep.take()
	if err != nil {
		return err
	}
	l.spare = append(l.spare, next)
	l.prep.want <- next.End()
	return nil
}

// cover makes sure that there are files up to end. After an error nothing has changed.
func (l *Log) cover(end record.Pos) error {
	for l.covered() < end {
		if err := l.fetch(); err != nil {
			return mqerr.New(mqerr.DiskFull, "segment %d cannot be made: %w", l.covered(), err)
		}
	}
	return nil
}

// coverAs makes sure that the next segments end at the given positions. After an error nothing is lost: what is
// there can be filled.
func (l *Log) coverAs(ends []record.Pos) error {
	for i, end := range ends {
		for len(l.spare) <= i {
			if err := l.fetch(); err != nil {
				return mqerr.New(mqerr.DiskFull, "segment %d cannot be made: %w", l.covered(), err)
			}
		}
		if l.spare[i].End() == end {
			continue
		}
		base := l.spare[i].Base()
		if err := l.dropSpare(i); err != nil {
			return l.fail(err)
		}
		s, err := segment.Create(l.o.FS, l.o.Dir, base, int64(end-base))
		if err == nil {
			l.spare = append(l.spare, s)
		}
		l.prep = startPreparer(l.o, l.covered(), &l.gate, nil)
		if err != nil {
			return mqerr.New(mqerr.DiskFull, "segment %d cannot be made: %w", base, err)
		}
	}
	return nil
}

// newestAs makes the newest segment, in which nothing is yet, end at a position. A disk that is full in
// between is met again by the next start only: what was there is gone.
func (l *Log) newestAs(end record.Pos) error {
	old := l.newest()
	if old.End() == end {
		return nil
	}
	if err := l.dropSpare(0); err != nil {
		return l.fail(err)
	}
	segs := *l.segs.Load()
	kept := slices.Clone(segs[:len(segs)-1])
	l.segs.Store(&kept)
	if err := old.Remove(); err != nil {
		return l.fail(err)
	}
	s, err := segment.Create(l.o.FS, l.o.Dir, old.Base(), int64(end-old.Base()))
	if err != nil {
		return l.fail(err)
	}
	l.add(s)
	l.prep = startPreparer(l.o, s.End(), &l.gate, nil)
	return nil
}

// dropSpare stops the preparer and removes the empty segments that are there for later, from the nth on, the
// last one first: the log has no gap at any moment.
func (l *Log) dropSpare(n int) error {
	out := slices.Clone(l.spare[n:])
	if s := l.prep.stop(); s != nil {
		out = append(out, s)
	}
	l.prep, l.spare = nil, l.spare[:n]
	for _, s := range slices.Backward(out) {
		if err := s.Remove(); err != nil {
			return err
		}
	}
	return l.o.FS.SyncDir(l.o.Dir)
}

// roll goes on to the next segment, which is there.
func (l *Log) roll() {
	next := l.spare[0]
	l.spare = l.spare[1:]
	l.add(next)
	if f := l.o.Events.SegmentRolled; f != nil {
		f(next.Base())
	}
}
