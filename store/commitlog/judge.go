package commitlog

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// Judge reads what Recover would read and returns the error with which that would refuse the log, nil if it would take
// it. It changes nothing.
func (l *Log) Judge(from record.Pos) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recovered {
		return nil
	}
	_, _, _, err := l.judge(from, func(record.Record) error { return nil }, func(Past) error { return nil })
	return err
}

// judge replays the log and refuses one that is damaged. It returns the holes below from that are to be noted, and
// below what the log was durable once. No file is changed.
func (l *Log) judge(from record.Pos, apply func(record.Record) error, lost func(Past) error) (r Recovered, found []Hole, promised record.Pos, err error) {
	if promised, err = l.Promised(); err != nil {
		return r, nil, 0, err
	}
	promised = max(promised, from)
	segs := *l.segs.Load()
	if err := l.checkStart(segs, from, promised); err != nil {
		return r, nil, 0, err
	}
	if found, err = l.look(segs, from, promised); err != nil {
		return r, nil, 0, err
	}
	r, read, err := l.replay(from, promised, apply, lost)
	switch {
	case err != nil:
	case r.End < promised:
		err = l.damage(r, read, promised)
	default:
		err = l.checkUnpromised(r, read)
	}
	return r, found, promised, err
}

// Promised is a position below which the log was durable once, as its directory and its owner tell; 0 if
// they do not. Bytes below that are no record are damage; a tail above may be torn.
func (l *Log) Promised() (record.Pos, error) {
	pos, _, err := readMark(l.o.FS, l.o.Dir)
	return max(pos, l.o.Tail.End), err
}

// checkStart refuses a position that is not in the log.
func (l *Log) checkStart(segs []*segment.Segment, from, promised record.Pos) error {
	first, end := record.Pos(0), record.Pos(0)
	if len(segs) > 0 {
		first, end = segs[0].Base(), segs[len(segs)-1].End()
	}
	switch {
	case l.o.SkipDamage:
		return nil
	case from < first && !l.inHole(from, first):
		return mqerr.New(mqerr.Corrupt, "log %s begins at position %d, but the views stand for position %d and need what comes after: bring the missing files back from a copy, or %s", l.o.Dir, first, from, repairAdvice)
	case promised > end && !l.inHole(end, promised):
		return mqerr.New(mqerr.Corrupt, "log %s ends before position %d, but was durable up to there%s: bring the missing files back from a copy, or %s", l.o.Dir, promised, l.witness(promised), repairAdvice)
	}
	return nil
}

// repairAdvice is what to do about damage when there is no copy.
const repairAdvice = "stop and run perigee debug repair, which shows what would be lost without it; --on-damage skip goes on at once"

// inHole tells whether all of a range is known to be lost.
func (l *Log) inHole(from, to record.Pos) bool {
	h, ok := holeAt(l.Holes(), from)
	return ok && h.To >= to
}

// damage is the refusal to cut away what was promised. read is where the reading ended.
func (l *Log) damage(r Recovered, read, promised record.Pos) error {
	at, why := read, r.Torn
	switch {
	case read >= promised:
		at, why = r.End, mqerr.New(mqerr.Corrupt, "the batch of %d records that begins here is not complete", r.Incomplete)
	case why == nil:
		why = mqerr.New(mqerr.Corrupt, "nothing was written here")
	}
	return mqerr.New(mqerr.Corrupt, "%s: no whole record, but the log was durable up to position %d%s: bring the file back from a copy or a replica, or %s: %w",
		l.where(at), promised, l.witness(promised), repairAdvice, why)
}
