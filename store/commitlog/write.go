package commitlog

import (
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// Write appends a batch, one pwrite for each segment it touches, and advances Written. It syncs nothing.
// DiskFull says that a segment cannot be made now: nothing was written then, and the log is well. Any other
// failure is final for the log; the batch may then be in the files in part, and Recover cuts it.
func (l *Log) Write(b *Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if err := b.check(l.Written()); err != nil {
		return l.fail(err)
	}
	if err := l.cover(b.pos); err != nil {
		return err
	}
	for i, p := range b.pieces {
		hi := len(b.buf)
		if i+1 < len(b.pieces) {
			hi = b.pieces[i+1].lo
		}
		if err := l.writePiece(p.pos, b.buf[p.lo:hi]); err != nil {
			return l.fail(err)
		}
	}
	if len(b.pieces) > 0 {
		l.last, l.epoch, l.time = b.last, b.epoch, b.time
		l.written.Store(int64(b.pos))
		l.limit.Store(int64(b.pos))
	}
	return nil
}

func (l *Log) writable() error {
	switch err := l.Err(); {
	case err != nil:
		return err
	case !l.ready:
		return mqerr.New(mqerr.Internal, "log %s is not open for appends: Recover comes first, and nothing after Close", l.o.Dir)
	}
	return nil
}

// check tells whether the batch may be written behind written.
func (b *Batch) check(written record.Pos) error {
	switch {
	case b.fault != nil:
		return b.fault
	case b.open >= 0:
		return mqerr.New(mqerr.Internal, "the record at %d was not sealed", b.pos)
	case b.chain:
		return mqerr.New(mqerr.Internal, "the last record at %d has FlagMore: a chain must be in one batch", b.last.Pos)
	case b.base != written:
		return mqerr.New(mqerr.Internal, "a batch for position %d comes when the log ends at %d", b.base, written)
	}
	return nil
}

func (l *Log) writePiece(pos record.Pos, data []byte) error {
	if int64(pos) == l.tail.Load() {
		l.roll()
	}
	if len(data) == 0 {
		return nil
	}
	return l.newest().WriteAt(data, pos)
}

// newest is the segment at the end of the log.
func (l *Log) newest() *segment.Segment {
	segs := *l.segs.Load()
	return segs[len(segs)-1]
}

// add makes s the newest segment and moves the mappings along. A segment that cannot be mapped is read
// by pread.
func (l *Log) add(s *segment.Segment) {
	segs := append(slices.Clone(*l.segs.Load()), s)
	l.tail.Store(int64(s.End()))
	l.segs.Store(&segs)
	l.mapNewest()
}

func (l *Log) mapNewest() {
	segs := *l.segs.Load()
	for i, s := range segs {
		if i < len(segs)-l.o.HotSegments {
			s.Unmap()
			continue
		}
		if err := s.Map(); err != nil {
			l.o.Log.Warn("segment cannot be mapped, it is read by system calls, which is slower; check the limits of memory and mappings (vm.max_map_count)", "file", s.Path(), "error", err.Error())
		}
	}
}

// Sync makes durable what was written before the call and advances Durable. It may run beside Write. A
// failure is final for the log: after a failed fdatasync nobody knows what is on disk.
func (l *Log) Sync() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	from, to := l.Durable(), l.Written()
	if from == to {
		return nil
	}
	if l.mark == nil {
		return mqerr.New(mqerr.Internal, "log %s is closed", l.o.Dir)
	}
	began := time.Now()
	for _, s := range *l.segs.Load() {
		if s.End() <= from || s.Base() >= to {
			continue
		}
		if err := s.Sync(); err != nil {
			return l.fail(err)
		}
	}
	if err := l.mark.set(to); err != nil {
		return l.fail(err)
	}
	l.durable.Store(int64(to))
	if f := l.o.Events.Synced; f != nil {
		f(from, to, time.Since(began))
	}
	return nil
}
