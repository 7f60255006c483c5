package commitlog

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// Recovered says what Recover found.
type Recovered struct {
	End     record.Pos   // of the log; appends go on here
	Records int64        // replayed
	Epoch   record.Epoch // of the last record replayed; 0 if there was none
	Time    int64        // store time of the last record replayed, ms; 0 if there was none
	Last    Last         // the last record replayed
	// Torn says what stood at the end instead of a record, nil if nothing did. A power cut leaves such.
	Torn error
	// Incomplete is how many whole records were cut because the rest of their batch was missing.
	Incomplete int
}

// Recover reads every record from a record's position on (First, or that of a checkpoint), verifies them
// and gives them to apply in order, pads excepted. Bodies are valid until apply returns. What comes after
// the last whole record, and a batch that is not complete, is cut durably; then the tail is synced, so
// that everything that was replayed is durable, and the log is ready for appends.
//
// Bytes that are no record, but lie below what was once durable, are damage: Recover refuses and changes
// no file.
func (l *Log) Recover(from record.Pos, apply func(record.Record) error) (Recovered, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.recovered || l.o.ReadOnly {
		return Recovered{}, mqerr.New(mqerr.Internal, "log %s was recovered before, or is open for reading only", l.o.Dir)
	}
	promised, err := l.Promised()
	if err != nil {
		return Recovered{}, err
	}
	segs := *l.segs.Load()
	if err := l.checkStart(segs, from, promised); err != nil {
		return Recovered{}, err
	}
	r, err := l.replay(segs, from, apply)
	if err != nil {
		return r, err
	}
	if r.End < promised {
		return r, l.damage(r, promised)
	}
	l.recovered = true
	if err := l.cut(r.End); err != nil {
		return r, l.fail(err)
	}
	if err := l.settle(r, min(from, promised)); err != nil {
		return r, l.fail(err)
	}
	if r.Torn != nil || r.Incomplete > 0 {
		l.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "unfinished end of the log was cut", slog.Int64("position", int64(r.End)),
			slog.Int("incomplete_records", r.Incomplete), slog.Any("instead_of_record", r.Torn))
	}
	return r, nil
}

// Promised is a position below which the log was durable once, as its directory tells; 0 if it does not.
// Bytes below that are no record are damage; a tail above may be torn.
func (l *Log) Promised() (record.Pos, error) { return readMark(l.o.FS, l.o.Dir) }

// checkStart refuses a position that is not in the log.
func (l *Log) checkStart(segs []*segment.Segment, from, promised record.Pos) error {
	first, end := record.Pos(0), record.Pos(0)
	if len(segs) > 0 {
		first, end = segs[0].Base(), segs[len(segs)-1].End()
	}
	switch {
	case from < first:
		return mqerr.New(mqerr.Corrupt, "log %s begins at position %d, but the views stand for position %d and need what comes after: bring the missing files back from a copy", l.o.Dir, first, from)
	case from > end || promised > end:
		return mqerr.New(mqerr.Corrupt, "log %s ends before position %d, but was durable up to there: bring the missing files back from a copy", l.o.Dir, max(from, promised))
	}
	return nil
}

// damage is the refusal to cut away what was promised.
func (l *Log) damage(r Recovered, promised record.Pos) error {
	why := r.Torn
	switch {
	case r.Incomplete > 0:
		why = mqerr.New(mqerr.Corrupt, "the batch of %d records that begins here is not complete", r.Incomplete)
	case why == nil:
		why = mqerr.New(mqerr.Corrupt, "nothing was written here")
	}
	return mqerr.New(mqerr.Corrupt, "%s: no whole record, but the log was durable up to position %d: bring the file back from a copy or a replica. "+
		"To give up everything from here on, remove %s and start again: %w", l.where(r.End), promised, filepath.Join(l.o.Dir, MarkName), why)
}

// replay gives whole batches to apply. The last position of Recovered is where the log is to be cut.
func (l *Log) replay(segs []*segment.Segment, from record.Pos, apply func(record.Record) error) (Recovered, error) {
	r := Recovered{End: from, Last: Last{Pos: -1}}
	s := scanner{segs: segs, pos: from, limit: record.Pos(l.limit.Load())}
	defer s.leave()
	var c chain
	for {
		rec, ok, err := s.next()
		if err != nil {
			return r, err
		}
		if !ok {
			r.Torn, r.Incomplete = s.why, len(c.records)
			return r, nil
		}
		if rec.Type == record.TypePad {
			if len(c.records) == 0 {
				r.End = s.pos
			}
			continue
		}
		if rec.Flags&record.FlagMore != 0 || len(c.records) > 0 {
			c.add(rec)
			if rec.Flags&record.FlagMore != 0 {
				continue
			}
			for _, member := range c.records {
				if err := apply(member); err != nil {
					return r, err
				}
			}
			r.Records += int64(len(c.records))
			c.reset()
		} else {
			if err := apply(rec); err != nil {
				return r, err
			}
			r.Records++
		}
		r.End, r.Epoch, r.Time, r.Last = s.pos, rec.Epoch, rec.Time, Last{Pos: rec.Pos, CRC: rec.CRC}
	}
}

// chain holds the records of a batch until its last one is found to be whole.
type chain struct {
	records []record.Record
	bytes   []byte
}

func (c *chain) add(r record.Record) {
	lo := len(c.bytes)
	c.bytes = append(c.bytes, r.Body...) // when it moves, the bodies before keep the old bytes
	r.Body = c.bytes[lo:len(c.bytes):len(c.bytes)]
	c.records = append(c.records, r)
}

func (c *chain) reset() {
	clear(c.records)
	c.records, c.bytes = c.records[:0], c.bytes[:0]
}

// cut makes the log end at a position, durably: nothing that could pass for a record stays behind it, in
// this segment or another.
func (l *Log) cut(end record.Pos) error {
	if err := errors.Join(l.dropTemps(), l.dropLeft()); err != nil {
		return err
	}
	segs := *l.segs.Load()
	keep := len(segs)
	for keep > 0 && segs[keep-1].Base() > end {
		keep--
	}
	// Later segments go first, from the end and one by one: if the power fails in between, what is left
	// has no gap and is cut at the same place again.
	for _, s := range slices.Backward(segs[keep:]) {
		if err := s.Remove(); err != nil {
			return err
		}
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return err
		}
	}
	kept := slices.Clone(segs[:keep])
	l.segs.Store(&kept)
	if keep == 0 || kept[keep-1].End() == end {
		return nil
	}
	return kept[keep-1].Clear(end)
}

// dropTemps removes what a Create or a ReplaceFile did not finish.
func (l *Log) dropTemps() error {
	names, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, vfs.TempSuffix) {
			if err := l.o.FS.Remove(filepath.Join(l.o.Dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle makes the files from a position on durable, and the log ready for appends at its end. What a
// killed process wrote is in the page cache only: nobody may see it before this.
func (l *Log) settle(r Recovered, from record.Pos) error {
	for _, s := range *l.segs.Load() {
		if s.End() > from {
			if err := s.Sync(); err != nil {
				return err
			}
		}
	}
	var err error
	// This syncs the directory too, with the names of segments that a killed process had just made.
	if l.mark, err = startMark(l.o.FS, l.o.Dir, r.End); err != nil {
		return err
	}
	if l.find(r.End) == nil {
		s, err := segment.Create(l.o.FS, l.o.Dir, r.End, l.o.SegmentBytes)
		if err != nil {
			return err
		}
		l.add(s)
	}
	l.mapNewest()
	l.tail.Store(int64(l.newest().End()))
	l.epoch, l.time, l.last = r.Epoch, r.Time, r.Last
	l.written.Store(int64(r.End))
	l.durable.Store(int64(r.End))
	l.limit.Store(int64(r.End))
	l.prep = startPreparer(l.o, l.newest().End(), &l.hold)
	go l.reap.run()
	l.ready = true
	return nil
}
