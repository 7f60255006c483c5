package commitlog

import (
	"context"
	"log/slog"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Truncate makes the log end at a position, the end of a record and of its batch at or above First, and forgets
// what came after it: it belongs to an epoch that was given up. When it returns that is durable, and nothing of
// what was there can be taken for a record later. Written and Durable go back, so nobody may use what lies
// above: no view may stand for it, and no append, Sync or ChunkReader may be under way.
//
// A position that is no such end is an error of kind Invalid, and nothing has changed. Any other failure is
// final for the log. A crash on the way leaves the old end, the new one, or one between, and a log that
// recovers.
func (l *Log) Truncate(to record.Pos) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	from := l.Written()
	if to == from {
		return nil
	}
	r, err := l.endsAt(to)
	if err != nil {
		return err
	}
	if err := l.shorten(r); err != nil {
		return l.fail(err)
	}
	l.o.Log.LogAttrs(context.Background(), slog.LevelInfo, "end of the log was cut", slog.Int64("from", int64(from)), slog.Int64("to", int64(to)))
	return nil
}

// endsAt describes the log as it would be if it ended at a position.
func (l *Log) endsAt(to record.Pos) (Recovered, error) {
	r := Recovered{End: to, Last: Last{Pos: -1}}
	if to < l.First() || to > l.Written() {
		return r, mqerr.New(mqerr.Invalid, "log %s, from position %d to %d, can't be cut at %d", l.o.Dir, l.First(), l.Written(), to)
	}
	if to == l.First() {
		return r, nil
	}
	in := l.find(to - 1)
	if in == nil {
		return r, mqerr.New(mqerr.Invalid, "log %s can't be cut at %d: no file holds what comes before", l.o.Dir, to)
	}
	s := l.scanner(in.Base())
	s.limit = to
	defer s.leave()
	chain := false
	for s.pos < to {
		rec, ok, err := s.next()
		switch {
		case err != nil:
			return r, err
		case !ok:
			return r, mqerr.New(mqerr.Corrupt, "log %s can't be cut at %d: %s: no whole record: %w", l.o.Dir, to, l.where(s.pos), s.why)
		}
		if rec.Type != record.TypePad {
			chain = rec.Flags&record.FlagMore != 0
			r.Epoch, r.Time, r.Last = rec.Epoch, rec.Time, Last{Pos: rec.Pos, Epoch: rec.Epoch, CRC: rec.CRC}
		}
	}
	if s.pos != to || chain {
		return r, mqerr.New(mqerr.Invalid, "log %s can't be cut at %d: that is within a record, or a batch", l.o.Dir, to)
	}
	return r, nil
}

// shorten forgets first that more was durable: if the power fails before the files are cut, the next start
// finds all of it, or a part, and nothing that was promised and is missing.
func (l *Log) shorten(r Recovered) error {
	durable := min(l.Durable(), r.End)
	l.written.Store(int64(r.End))
	l.durable.Store(int64(durable))
	l.limit.Store(int64(r.End))
	if err := l.mark.lower(r.End); err != nil {
		return err
	}
	if err := l.dropSpare(0); err != nil {
		return err
	}
	if err := l.cutSegments(r.End, false); err != nil {
		return err
	}
	for _, s := range *l.segs.Load() {
		if s.End() > durable {
			if err := s.Sync(); err != nil {
				return err
			}
		}
	}
	l.timesMu.Lock()
	for base := range l.times {
		if base >= r.End {
			delete(l.times, base)
		}
	}
	l.timesMu.Unlock()
	if holes := l.Holes(); len(holes) > 0 && holes[len(holes)-1].From >= r.End {
		if err := l.keepHoles(slices.DeleteFunc(slices.Clone(holes), func(h Hole) bool { return h.From >= r.End })); err != nil {
			return err
		}
	}
	return l.goOn(r)
}
