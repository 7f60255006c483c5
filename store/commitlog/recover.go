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
	// Crossed are the holes that the replay passed over, those found now and those known before.
	Crossed []Past
}

// Recover reads every record from a record's position on (First, or that of a checkpoint), verifies them
// and gives them to apply in order, pads excepted. Bodies are valid until apply returns. What comes after
// the last whole record, and a batch that is not complete, is cut durably; then the tail is synced, so
// that everything that was replayed is durable, and the log is ready for appends.
//
// Bytes that are no record, but lie below what was once durable, are damage: Recover refuses and changes
// no file. With Options.SkipDamage it goes on with the next whole record, and notes the hole. Records
// before a hole that belong to a batch which ends in it are given to apply like others.
func (l *Log) Recover(from record.Pos, apply func(record.Record) error) (Recovered, error) {
	return l.RecoverOver(from, apply, func(Past) error { return nil })
}

// RecoverOver is Recover that tells lost of each hole, in order with the records.
func (l *Log) RecoverOver(from record.Pos, apply func(record.Record) error, lost func(Past) error) (Recovered, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	if l.recovered || l.o.ReadOnly {
		return Recovered{}, mqerr.New(mqerr.Internal, "log %s was recovered before, or is open for reading only", l.o.Dir)
	}
	r, found, promised, err := l.judge(from, apply, lost)
	if err != nil {
		return r, err
	}
	if f := l.o.Settling; f != nil {
		if err := f(); err != nil {
			return r, err
		}
	}
	l.recovered = true
	for _, p := range r.Crossed {
		if !p.Known {
			found = append(found, p.Hole)
		}
	}
	if len(found) > 0 {
		if err := l.Note(found...); err != nil {
			return r, l.fail(err)
		}
	}
	if err := l.cut(r.End); err != nil {
		return r, l.fail(err)
	}
	if err := l.settle(r, min(from, promised)); err != nil {
		return r, l.fail(err)
	}
	if r.Torn != nil || r.Incomplete > 0 {
		l.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "unfinished end of the log was cut, as a crash leaves it: no record that was surely on disk was in it, nothing has to be done", slog.Int64("position", int64(r.End)),
			slog.Int("incomplete_records", r.Incomplete), slog.Any("instead_of_record", r.Torn))
	}
	return r, nil
}

// replay gives whole batches to apply. End of Recovered is where the log is to be cut; the position is
// where the reading ended.
func (l *Log) replay(from, promised record.Pos, apply func(record.Record) error, lost func(Past) error) (Recovered, record.Pos, error) {
	r := Recovered{End: from, Last: Last{Pos: -1}}
	s := l.scanner(from)
	s.promised, s.skip = promised, l.o.SkipDamage
	defer s.leave()
	_, marked, err := readMark(l.o.FS, l.o.Dir)
	if err != nil {
		return r, from, err
	}
	s.unmarked = !marked
	var c chain
	end := func(last record.Header, pos record.Pos) {
		r.End, r.Epoch, r.Time, r.Last = pos, last.Epoch, last.Time, Last{Pos: last.Pos, Epoch: last.Epoch, CRC: last.CRC}
	}
	// flush applies what is there of a batch, whose last record ends at pos.
	flush := func(pos record.Pos) error {
		for _, member := range c.records {
			if err := apply(member); err != nil {
				return err
			}
		}
		if n := len(c.records); n > 0 {
			r.Records += int64(n)
			end(c.records[n-1].Header, pos)
			c.reset()
		}
		return nil
	}
	for {
		rec, ok, err := s.next()
		if err != nil {
			return r, s.pos, err
		}
		for _, h := range s.crossed() {
			if err := flush(h.From); err != nil {
				return r, s.pos, err
			}
			r.Crossed, r.End = append(r.Crossed, h), h.To
			if err := lost(h); err != nil {
				return r, s.pos, err
			}
		}
		if !ok {
			if s.blind && !l.o.SkipDamage { // what is there may have been promised
				return r, s.pos, mqerr.New(mqerr.Corrupt, "%w: check the disk; bring the file back from a copy or a replica, or %s", s.why, repairAdvice)
			}
			if l.o.SkipDamage && r.End < promised { // the end of a batch was promised and is not there
				if err := flush(s.pos); err != nil {
					return r, s.pos, err
				}
			}
			r.Torn, r.Incomplete = s.why, len(c.records)
			return r, s.pos, nil
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
			if err := flush(s.pos); err != nil {
				return r, s.pos, err
			}
			continue
		}
		if err := apply(rec); err != nil {
			return r, s.pos, err
		}
		r.Records++
		end(rec.Header, s.pos)
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
	return l.cutSegments(end, true)
}

// cutSegments cuts the files. With ahead the first one behind the end stays, empty, for later; nobody may be reading it.
func (l *Log) cutSegments(end record.Pos, ahead bool) error {
	segs := *l.segs.Load()
	keep := len(segs)
	for keep > 0 && (segs[keep-1].Base() > end || segs[keep-1].End() == segs[keep-1].Base()) {
		keep--
	}
	// Later segments go first, from the end and one by one: if the power fails in between, what is left
	// has no gap and is cut at the same place again.
	rest, spare := segs[keep:], []*segment.Segment(nil)
	if ahead && keep > 0 && len(rest) > 0 && rest[0].Base() == segs[keep-1].End() && int64(rest[0].End()-rest[0].Base()) == l.o.SegmentBytes {
		spare, rest = rest[:1:1], rest[1:] // a full disk may not have the space for another one
	}
	for _, s := range slices.Backward(rest) {
		if err := s.Remove(); err != nil {
			return err
		}
		if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
			return err
		}
	}
	for _, s := range spare {
		if err := errors.Join(s.Clear(s.Base()), s.Sync()); err != nil {
			return err
		}
	}
	l.spare = spare
	kept := slices.Clone(segs[:keep])
	l.segs.Store(&kept)
	if keep == 0 || kept[keep-1].End() <= end {
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
	if err := l.goOn(r); err != nil {
		return err
	}
	go l.reap.run()
	l.ready = true
	return nil
}

// goOn places the log at its end, which is durable, for appends.
func (l *Log) goOn(r Recovered) error {
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
	l.prep = startPreparer(l.o, l.covered(), &l.gate, l.spare)
	l.spare = nil
	return nil
}
