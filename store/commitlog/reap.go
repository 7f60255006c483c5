package commitlog

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/segment"
)

// Removing a large file at once stalls a file system: its blocks go in steps, 8 of them in a second if none is
// beyond its bounds.
const (
	reapStepMin = 1 << 20
	reapStepMax = 32 << 20
	reapPause   = 10 * time.Second // after a failure
)

// reaper removes the files of segments that left the log, in its goroutine, at a bounded rate. A file is
// touched when nobody reads it any more: to shorten one that is mapped would end the process of a reader.
type reaper struct {
	o     Options
	bytes atomic.Int64 // of all files, those with readers included

	mu    sync.Mutex
	files []reaped // nobody reads them

	bell  chan struct{}
	quit  chan struct{}
	ended chan struct{}
}

type reaped struct {
	path string
	size int64
}

func newReaper(o Options) *reaper {
	return &reaper{o: o, bell: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
}

// add closes a segment, whose file has its last name, and takes the file when the last reader has left.
func (r *reaper) add(s *segment.Segment) {
	f := reaped{path: s.Path() + GoneSuffix, size: int64(s.End() - s.Base())}
	r.bytes.Add(f.size)
	s.CloseThen(func() { r.put(f) })
}

// take takes the file of a former process.
func (r *reaper) take(path string) {
	f := reaped{path: path}
	if info, err := r.o.FS.Stat(path); err == nil {
		f.size = info.Size
	}
	r.bytes.Add(f.size)
	r.put(f)
}

func (r *reaper) put(f reaped) {
	r.mu.Lock()
	r.files = append(r.files, f)
	r.mu.Unlock()
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

func (r *reaper) next() (f reaped, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.files) == 0 {
		return f, false
	}
	f = r.files[0]
	r.files = r.files[1:]
	return f, true
}

func (r *reaper) run() {
	defer close(r.ended)
	for {
		f, ok := r.next()
		if !ok {
			select {
			case <-r.quit:
				return
			case <-r.bell:
			}
			continue
		}
		err := r.remove(&f)
		if errors.Is(err, errStopped) {
			return
		}
		if err != nil {
			r.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "file of a deleted segment cannot be removed, trying again; check its permissions and the disk",
				slog.String("file", f.path), slog.Duration("pause", reapPause), slog.String("error", err.Error()))
			r.put(f)
			if !r.pause(reapPause) {
				return
			}
		}
	}
}

var errStopped = errors.New("the log is closed")

// remove shortens a file step by step and removes it. What is left of one is removed by the next start.
func (r *reaper) remove(f *reaped) error {
	file, err := r.o.FS.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		r.bytes.Add(-f.size)
		return nil
	}
	if err != nil {
		return err
	}
	total := f.size
	if err := errors.Join(r.shorten(f, file), file.Close()); err != nil {
		return err
	}
	if err := r.o.FS.Remove(f.path); err != nil {
		return err
	}
	r.bytes.Add(-f.size)
	if fn := r.o.Events.SegmentRemoved; fn != nil {
		fn(f.path, total)
	}
	return nil
}

func (r *reaper) shorten(f *reaped, file vfs.File) error {
	step := min(max(r.o.DropRate/8, reapStepMin), reapStepMax)
	for f.size > step {
		if err := file.Truncate(f.size - step); err != nil {
			return err
		}
		f.size -= step
		r.bytes.Add(-step)
		if !r.pause(r.due(step)) {
			return errStopped
		}
	}
	if !r.pause(r.due(f.size)) {
		return errStopped
	}
	return nil
}

// due is how long so many bytes take at most.
func (r *reaper) due(bytes int64) time.Duration {
	return time.Duration(float64(bytes) / float64(r.o.DropRate) * float64(time.Second))
}

// pause waits; false if the log is being closed.
func (r *reaper) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.quit:
		return false
	}
}

func (r *reaper) stop() {
	close(r.quit)
	<-r.ended
}
