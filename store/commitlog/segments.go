package commitlog

import (
	"github.com/perigee-mq/perigee/store/record"
)

// SegmentInfo describes a file of the log.
type SegmentInfo struct {
	Base, End record.Pos
	// FirstTime is the store time of the first record, ms since 1970: no record in the file is older. If that is
	// lost in a hole, it is that of the record behind the hole.
	// LastTime is one that no record in the file is newer than: that of the first record behind it, or of the
	// newest of all. Each is -1 if it is not known: the record cannot be read, or the newest file has none yet.
	FirstTime, LastTime int64
}

// Segments describes the files of the log, oldest first. What is prepared for later is not there. It reads one
// record of each file that it has not looked at before.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	segs, newest, written := *l.segs.Load(), l.time, l.Written()
	l.mu.Unlock()
	infos := make([]SegmentInfo, 0, len(segs))
	for _, s := range segs {
		infos = append(infos, SegmentInfo{Base: s.Base(), End: s.End(), FirstTime: l.firstTime(s.Base(), written), LastTime: -1})
	}
	last := int64(-1)
	if newest > 0 {
		last = newest
	}
	for i := len(infos) - 1; i >= 0; i-- {
		infos[i].LastTime = last
		if infos[i].FirstTime >= 0 {
			last = infos[i].FirstTime
		}
	}
	return infos
}

// firstTime is the store time of the record at the beginning of a file, or of the one behind the hole that is
// there.
func (l *Log) firstTime(base, written record.Pos) int64 {
	at := base
	if h, lost := holeAt(l.Holes(), base); lost {
		at = h.To
	}
	if at >= written {
		return -1
	}
	l.timesMu.Lock()
	defer l.timesMu.Unlock()
	if at, ok := l.times[base]; ok {
		return at
	}
	r, ref, err := l.Read(at, 0)
	if err != nil {
		return -1
	}
	defer ref.Release()
	for old := range l.times {
		if old < l.First() {
			delete(l.times, old)
		}
	}
	l.times[base] = r.Time
	return r.Time
}
