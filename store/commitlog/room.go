package commitlog

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Room is how many bytes can be appended into files that are there already. It grows when the next
// segment is prepared and stays low if that fails, as on a full disk: refuse before it is used up.
func (l *Log) Room() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prep == nil {
		return 0
	}
	return int64(l.reach()) - l.written.Load()
}

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
func (l *Log) Stuck() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prep == nil {
		return nil
	}
	return l.prep.stuck()
}

// Hold says whether further files are to be made. While they are not, what is there can be filled.
func (l *Log) Hold(on bool) {
	l.hold.Store(on)
	if !on {
		l.grant.Store(false)
	}
}

// Grant lets one further file be made while the log is held, soon; more often than that it does nothing.
func (l *Log) Grant() { l.grant.Store(l.hold.Load()) }

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

// roll goes on to the next segment, which is there.
func (l *Log) roll() {
	next := l.spare[0]
	l.spare = l.spare[1:]
	l.add(next)
	if f := l.o.Events.SegmentRolled; f != nil {
		f(next.Base())
	}
}
