// Package commitlog is the one log of a broker: records in segments, appended in batches, synced in
// groups, recovered to the last whole record.
//
// Positions are bytes since the log began. Three of them only grow: First, Durable (everything below is
// on disk) and Written (everything below can be read). One goroutine appends: it fills a Batch and gives
// it to Write. Another one calls Sync; a Sync covers what was written before it and may run beside
// writes. A failed write or sync is final: what is on disk is unknown then, so nothing more is appended
// and Durable stays.
//
// Beside its segments the log keeps one small file, MarkName, with a position that was durable once.
// It is what tells a torn tail, which is cut, from damage to records that were promised, which is not.
// See docs/format/segment.md.
package commitlog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// Options configures Open. The zero value of a field means its default.
type Options struct {
	// FS holds the files. Default vfs.OS.
	FS vfs.FS
	// Dir is the directory of the log; Open makes it.
	Dir string
	// SegmentBytes is the length of new segments, a multiple of 4096 up to 2 GiB. Default 1 GiB. Those
	// that exist keep theirs.
	SegmentBytes int64
	// HotSegments is how many of the newest segments are mapped. Default 2.
	HotSegments int
	// ColdReaders bounds the reads of other segments that run at once. Default 2.
	ColdReaders int
	// DropRate is how many bytes of deleted segments are given back to the disk in a second. Default 256 MiB.
	DropRate int64
	// ReadOnly opens the log for Scan, ScanPast, Read and Note only and changes no segment.
	ReadOnly bool
	// SkipDamage goes on behind damaged and missing records instead of refusing them, and notes the holes.
	SkipDamage bool
	// Tail is the end of the log as its owner vouches for it: that of a clean stop. Zero: unknown.
	Tail Tail
	// Settling is called by Recover when the log is found to be well, before any file is changed.
	Settling func() error
	// Log receives this package's records. Default: discard.
	Log *slog.Logger
	// Events are called when something happened.
	Events Events
}

// Tail is where a log ended, and the record there.
type Tail struct {
	End record.Pos
	Last
}

// Events are optional functions. They must not call the log and not block.
type Events struct {
	SegmentRolled   func(base record.Pos)                      // the first record of a segment is about to be written
	SegmentPrepared func(base record.Pos, took time.Duration)  // the segment after the current one is ready
	PrepareFailed   func(err error)                            // it is tried again after a pause
	Synced          func(from, to record.Pos, t time.Duration) // Durable went from one to the other
	SegmentRemoved  func(path string, bytes int64)             // the file of a dropped segment is gone
	Failed          func(err error)                            // the log takes no more records
}

const (
	pageBytes       = 4096
	segmentBytesMax = 2 << 30
	// bodyBytesMax bounds a record however large segments are, so that reading one needs bounded memory.
	bodyBytesMax = 64<<20 - record.HeaderSize
)

func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 1 << 30
	}
	if o.HotSegments == 0 {
		o.HotSegments = 2
	}
	if o.ColdReaders == 0 {
		o.ColdReaders = 2
	}
	if o.DropRate == 0 {
		o.DropRate = 256 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.SegmentBytes < pageBytes || o.SegmentBytes > segmentBytesMax || o.SegmentBytes%pageBytes != 0 {
		return o, mqerr.New(mqerr.Invalid, "segments of %d bytes: take a multiple of %d from %d to %d", o.SegmentBytes, pageBytes, pageBytes, int64(segmentBytesMax))
	}
	if o.HotSegments < 1 || o.ColdReaders < 1 {
		return o, mqerr.New(mqerr.Invalid, "%d hot segments and %d cold readers: take at least one of each", o.HotSegments, o.ColdReaders)
	}
	if o.DropRate < 1 {
		return o, mqerr.New(mqerr.Invalid, "segments are deleted at %d bytes a second: take at least 1", o.DropRate)
	}
	return o, nil
}

// Log is an open log. Between Recover and Close it has two goroutines, which prepare segments and remove dropped ones.
type Log struct {
	o    Options
	cold chan struct{} // slots of cold reads

	segs    atomic.Pointer[[]*segment.Segment] // by position, gaps are holes; the slice never changes
	holes   atomic.Pointer[[]Hole]
	written atomic.Int64
	durable atomic.Int64
	limit   atomic.Int64 // records below can be read: written, or the end of the files before Recover
	failed  atomic.Pointer[failure]
	gate    gate
	watched atomic.Pointer[watched] // see watch

	mu        lock // guards appending: what follows, and changes of segs
	ready     bool // recovered and not closed
	recovered bool
	prep      *preparer
	spare     []*segment.Segment // taken from prep, behind the newest of segs
	tail      atomic.Int64       // end of the segment that Written is in
	last      Last
	seen      Tail         // see Expect
	epoch     record.Epoch // of the last record
	time      int64        // of the last record

	syncMu lock // guards one sync at a time, and mark
	mark   *mark

	dropMu lock // one DropBefore at a time; taken before mu
	drop   dropping
	reap   *reaper

	timesMu sync.Mutex // guards times
	times   map[record.Pos]int64
}

type failure struct{ err error }

// Last is the newest record of the log.
type Last struct {
	Pos   record.Pos // -1: the log is empty, or Recover read nothing and nothing was written since
	Epoch record.Epoch
	CRC   uint32
}

// Open lists the segments of a directory and looks at their first bytes. The log is ready for appends
// after Recover.
func Open(o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if !o.ReadOnly {
		if err := o.FS.MkdirAll(o.Dir); err != nil {
			return nil, err
		}
	}
	holes, err := readHoles(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	segs, err := openSegments(o, holes)
	if err != nil {
		return nil, err
	}
	l := &Log{o: o, cold: make(chan struct{}, o.ColdReaders), gate: gate{making: newLock()}, mu: newLock(), syncMu: newLock(), dropMu: newLock(), last: Last{Pos: -1}, reap: newReaper(o), times: map[record.Pos]int64{}}
	l.segs.Store(&segs)
	l.holes.Store(&holes)
	if len(segs) > 0 {
		l.limit.Store(int64(segs[len(segs)-1].End()))
	}
	return l, nil
}

// First is the position of the oldest record kept. DropBefore moves it.
func (l *Log) First() record.Pos {
	if segs := *l.segs.Load(); len(segs) > 0 {
		return segs[0].Base()
	}
	return 0
}

// Written is the end of what was written: everything below can be read.
func (l *Log) Written() record.Pos { return record.Pos(l.written.Load()) }

// Durable is the end of what is surely on disk.
func (l *Log) Durable() record.Pos { return record.Pos(l.durable.Load()) }

// MaxBody is the length in bytes of the largest body a record may have.
func (l *Log) MaxBody() int { return int(min(l.o.SegmentBytes-record.HeaderSize, bodyBytesMax)) }

// Last is the newest record, for the mark of a clean stop. Ask the goroutine that appends.
func (l *Log) Last() Last {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Err is the failure that ended the log, nil while it is well.
func (l *Log) Err() error {
	if f := l.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail makes the first failure the log's last word.
func (l *Log) fail(err error) error {
	kind := mqerr.KindOf(err)
	if vfs.IsFull(err) {
		kind = mqerr.DiskFull
	}
	wrapped := mqerr.New(kind, "log %s takes no more records, look after its disk and start again: %w", l.o.Dir, err)
	if !l.failed.CompareAndSwap(nil, &failure{wrapped}) {
		return l.Err()
	}
	// Whoever has the log reports it with what to do: one line is enough.
	l.o.Log.LogAttrs(context.Background(), slog.LevelDebug, "commit log failed and takes no more records", slog.String("dir", l.o.Dir), slog.String("error", err.Error()))
	if f := l.o.Events.Failed; f != nil {
		f(wrapped)
	}
	return wrapped
}

// find returns the segment that holds a position, nil if there is none.
func (l *Log) find(pos record.Pos) *segment.Segment {
	segs := *l.segs.Load()
	i, found := slices.BinarySearchFunc(segs, pos, func(s *segment.Segment, pos record.Pos) int { return int(s.Base() - pos) })
	if !found {
		i--
	}
	if i < 0 || pos >= segs[i].End() {
		return nil
	}
	return segs[i]
}

// Close syncs what was written, if the log is well, and lets go of the files. Bytes that a Ref holds stay
// good until it is released. Nothing may be under way but reads.
func (l *Log) Close() error {
	var err error
	if l.Err() == nil {
		err = l.Sync()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.prep != nil {
		if s := l.prep.stop(); s != nil {
			s.Close()
		}
		l.prep = nil
	}
	if l.ready {
		l.reap.stop()
		l.ready = false
	}
	for _, s := range l.spare {
		s.Close()
	}
	l.spare = nil
	if l.mark != nil {
		err = errors.Join(err, l.mark.close(l.Err() == nil))
		l.mark = nil
	}
	for _, s := range *l.segs.Load() {
		s.Close()
	}
	l.segs.Store(&[]*segment.Segment{})
	return err
}
