package commitlog

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// AppendChunk appends records of another log whose bytes up to here are the same, and advances Written. It
// syncs nothing. Everything is verified before anything is written: an error of kind Invalid says that the
// chunk does not fit here, one of kind Corrupt that it was damaged on the way. DiskFull is as in Write, any
// other failure is final for the log.
//
// Files are cut as those of the other log: the next one gets the length that it has there.
func (l *Log) AppendChunk(c Chunk) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	f, err := l.fit(c)
	if err != nil {
		return err
	}
	if f.fresh {
		if err := l.newestAs(f.ends[0]); err != nil {
			return err
		}
		f.ends = f.ends[1:]
	}
	if err := l.coverAs(f.ends); err != nil {
		return err
	}
	for i, p := range f.pieces {
		hi := len(c.Bytes)
		if i+1 < len(f.pieces) {
			hi = f.pieces[i+1].lo
		}
		if err := l.writePiece(p.pos, c.Bytes[p.lo:hi]); err != nil {
			return l.fail(err)
		}
	}
	if len(f.pieces) > 0 {
		l.last, l.epoch, l.time = f.last, c.Epoch, f.time
		l.written.Store(int64(c.End))
		l.limit.Store(int64(c.End))
	}
	return nil
}

// fitting is a chunk that was found to fit behind what is written.
type fitting struct {
	pieces []piece
	ends   []record.Pos // of the segments that are needed behind the newest one
	fresh  bool         // nothing is in the newest segment yet: it is the first of ends
	last   Last
	time   int64
}

// fit verifies a chunk: its records follow each other and what is written, whole batches, inside the
// segments that it names.
func (l *Log) fit(c Chunk) (fitting, error) {
	f := fitting{last: l.last, time: l.time}
	misfit := func(pos record.Pos, format string, args ...any) (fitting, error) {
		return f, mqerr.New(mqerr.Invalid, "records for position %d of log %s do not fit at %d: %w", c.Start, l.o.Dir, pos, mqerr.New(mqerr.Invalid, format, args...))
	}
	written, end, ends := l.Written(), record.Pos(l.tail.Load()), c.Segments
	if c.Start != written {
		return misfit(written, "the log ends there")
	}
	if len(c.Bytes) > 0 && written == l.newest().Base() {
		f.fresh, end = true, written
	}
	if written < end && len(ends) > 0 {
		if ends[0] != end {
			return misfit(written, "the segment there ends at %d, not at %d", end, ends[0])
		}
		ends = ends[1:]
	}
	pos, lo, chain := c.Start, 0, false
	if pos < c.End {
		f.pieces = append(f.pieces, piece{pos: pos})
	}
	for lo < len(c.Bytes) || pos < c.End {
		if pos == end {
			if len(ends) == 0 || ends[0] <= pos || ends[0]-pos > segmentBytesMax || ends[0]%record.Align != 0 {
				return misfit(pos, "it is not said how long the segment is that begins there")
			}
			end, f.ends, ends = ends[0], append(f.ends, ends[0]), ends[1:]
			if pos > c.Start {
				f.pieces = append(f.pieces, piece{pos: pos, lo: lo})
			}
		}
		rec, err := decode(c.Bytes[lo:])
		switch {
		case err != nil:
			return f, mqerr.New(mqerr.KindOf(err), "record for position %d: %w", pos, err)
		case rec.Pos != pos:
			return misfit(pos, "a record of position %d stands there", rec.Pos)
		case rec.Epoch != c.Epoch || rec.Epoch < l.epoch:
			return misfit(pos, "a record of epoch %d stands there, in a chunk of epoch %d behind epoch %d", rec.Epoch, c.Epoch, l.epoch)
		case rec.Time < f.time:
			return misfit(pos, "its store time %d is before %d", rec.Time, f.time)
		case rec.End() > end || rec.Type == record.TypePad && rec.End() != end:
			return misfit(pos, "a record of %d bytes stands there, and the segment ends at %d", rec.Size, end)
		}
		if rec.Type != record.TypePad {
			chain = rec.Flags&record.FlagMore != 0
			f.last = Last{Pos: pos, Epoch: rec.Epoch, CRC: rec.CRC}
		}
		f.time, pos, lo = rec.Time, rec.End(), lo+rec.Stored()
	}
	if pos != c.End || chain {
		return misfit(pos, "the last batch is not whole, or the end is not %d", c.End)
	}
	return f, nil
}
