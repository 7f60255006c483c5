package commitlog

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// GoneSuffix ends the name of a segment that left the log and is being removed. No start takes it, nor any
// segment of a lower position, for a part of the log.
const GoneSuffix = ".gone"

// dropping is what DropBefore knows from call to call. DropBefore has it alone.
type dropping struct {
	out    []*segment.Segment // left the log and have their names still, oldest first
	failed error              // of a directory sync: which names are durable is unknown
}

// DropBefore deletes the segments that end at or below pos, which must be durable; the newest one stays. They
// leave the log at once: First rises, and no Read or Scan finds them any more. Those that are inside one keep
// it. The call renames the files and syncs the directory; the space comes back beside everything else, at
// Options.DropRate, when the last reader has left.
//
// It returns how many bytes left the log. After an error of a rename the next call tries again; after one of
// the sync no more is deleted until the next start. A crash at any moment leaves a log without a gap, that
// begins at the old First, at the new one, or between.
func (l *Log) DropBefore(pos record.Pos) (bytes int64, err error) {
	l.dropMu.Lock()
	defer l.dropMu.Unlock()
	if err := l.drop.failed; err != nil {
		return 0, err
	}
	out, err := l.takeOut(pos)
	if err != nil {
		return 0, err
	}
	for _, s := range out {
		bytes += int64(s.End() - s.Base())
	}
	if l.drop.out = append(l.drop.out, out...); len(l.drop.out) == 0 {
		return 0, nil
	}
	return bytes, l.rename()
}

// takeOut takes segments out of the readable ones.
func (l *Log) takeOut(pos record.Pos) ([]*segment.Segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return nil, err
	}
	if durable := l.Durable(); pos > durable {
		return nil, mqerr.New(mqerr.Internal, "the log was to be deleted up to position %d, and is durable up to %d only", pos, durable)
	}
	segs := *l.segs.Load()
	n := 0
	for n < len(segs)-1 && segs[n].End() <= pos {
		n++
	}
	if n == 0 {
		return nil, nil
	}
	kept := slices.Clone(segs[n:])
	l.segs.Store(&kept)
	return segs[:n:n], nil
}

// rename gives the files of dropped segments the names under which no start knows them, makes that durable,
// and hands them to the reaper.
func (l *Log) rename() error {
	n, err := 0, error(nil)
	for ; n < len(l.drop.out) && err == nil; n++ {
		path := l.drop.out[n].Path()
		err = l.o.FS.Rename(path, path+GoneSuffix)
	}
	if err != nil {
		n--
	}
	if n == 0 {
		return err
	}
	if failed := l.o.FS.SyncDir(l.o.Dir); failed != nil {
		l.drop.failed = fmt.Errorf("segments were renamed and the directory %s cannot be synced: no more are deleted until the next start: %w", l.o.Dir, failed)
		return l.drop.failed
	}
	for _, s := range l.drop.out[:n] {
		l.reap.add(s)
	}
	l.drop.out = slices.Clone(l.drop.out[n:])
	return err
}

// Leaving is how many bytes the files of dropped segments still take.
func (l *Log) Leaving() int64 { return l.reap.bytes.Load() }

// lastGone is the highest first position of the segments that left the log and have files yet, -1 if there
// are none. They leave from the oldest on, so whatever is below has left, too: a power cut may have kept a
// later renaming and lost an earlier one.
func lastGone(names []string) record.Pos {
	last := record.Pos(-1)
	for _, name := range names {
		if base, ok := parseGone(name); ok {
			last = max(last, base)
		}
	}
	return last
}

func parseGone(name string) (base record.Pos, ok bool) {
	name, ok = strings.CutSuffix(name, GoneSuffix)
	if !ok {
		return 0, false
	}
	return segment.ParseName(name)
}

// reapedAtStart is how many files a start removes itself; the rest goes at the rate of any other.
const reapedAtStart = 16

// dropLeft gets rid of what a DropBefore did not finish. Names first: when they are durable the files may go in
// any order.
func (l *Log) dropLeft() error {
	names, err := l.o.FS.List(l.o.Dir)
	if err != nil {
		return err
	}
	last := lastGone(names)
	if last < 0 {
		return nil
	}
	var paths []string
	for _, name := range names {
		path := filepath.Join(l.o.Dir, name)
		if base, ok := segment.ParseName(name); ok && base <= last {
			if err := l.o.FS.Rename(path, path+GoneSuffix); err != nil {
				return err
			}
			paths = append(paths, path+GoneSuffix)
		} else if _, ok := parseGone(name); ok {
			paths = append(paths, path)
		}
	}
	if err := l.o.FS.SyncDir(l.o.Dir); err != nil {
		return err
	}
	for i, path := range paths {
		if i >= reapedAtStart {
			l.reap.take(path)
			continue
		}
		if err := l.o.FS.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
