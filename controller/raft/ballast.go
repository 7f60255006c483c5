package raft

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
)

// The library cannot bear a log or a vote that is not written: it panics, or gives the lead away and then
// cannot take it again. So space for them is kept in a file that is removed when the disk is full, and
// changes are refused from then on until it is there again.
const (
	ballastName  = "ballast"
	ballastBytes = 4 << 20
	// lastBytes of free space are enough for what a controller must note.
	lastBytes = 1 << 20
	// fullPause is how long a write waits for space before it is tried again.
	fullPause = 200 * time.Millisecond
)

type ballast struct {
	fs   vfs.FS
	dir  string
	log  *slog.Logger
	mu   sync.Mutex
	have bool
}

func (b *ballast) path() string { return filepath.Join(b.dir, ballastName) }

// keep makes the ballast if it is missing and the disk has room for it and more. It tells what is free
// beside it; known is false if the disk does not say.
func (b *ballast) keep() (have bool, free uint64, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u, err := b.fs.Usage(b.dir)
	if err != nil {
		return b.have, 0, false
	}
	if !b.have { // a former process may have kept it
		info, err := b.fs.Stat(b.path())
		b.have = err == nil && info.Size >= ballastBytes
	}
	if b.have || u.Free < 3*ballastBytes {
		return b.have, u.Free, true
	}
	f, err := b.fs.Create(b.path())
	if err != nil {
		return false, u.Free, true
	}
	err = f.Allocate(ballastBytes)
	if closed := f.Close(); err != nil || closed != nil {
		_ = b.fs.Remove(b.path())
		return false, u.Free, true
	}
	b.have = true
	return true, u.Free - ballastBytes, true
}

// spend gives the space of the ballast to others; false if there is none.
func (b *ballast) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.have {
		return false
	}
	b.have = false
	if err := b.fs.Remove(b.path()); err != nil {
		return false
	}
	b.log.LogAttrs(context.Background(), slog.LevelWarn, "the controller's disk is full: changes of topics and groups are refused; make room on it, they are taken again by themselves then",
		slog.String("dir", b.dir))
	return true
}

// room refuses a change that the disk may not take. What brokers need to serve goes on for longer.
func (b *ballast) room(c state.Command) error {
	have, free, known := b.keep()
	if !known {
		return nil
	}
	switch c.(type) {
	case state.Init, state.RegisterReplica, state.Enroll, state.UncleanElect, state.Elect, state.Resign, state.AlterS, state.SetApplied,
		state.PutController, state.RemoveController:
		if have || free >= lastBytes {
			return nil
		}
	default:
		if have && free >= lastBytes {
			return nil
		}
	}
	return mqerr.New(mqerr.DiskFull, "the controller's disk is full, nothing was changed: make room for %d MiB in %s, changes are taken again by themselves then", 3*ballastBytes>>20, b.dir)
}

// isFull tells whether a write failed for lack of space. The log's own library hides some of the causes.
func isFull(err error) bool {
	return err != nil && (vfs.IsFull(err) || strings.Contains(err.Error(), "no space left on device") || strings.Contains(err.Error(), "disk quota exceeded"))
}

// write does a write of the log or of a vote until the disk takes it: with the ballast's space at first,
// then it waits, unless the node is being opened. Any other failure is final.
func (s *store) write(do func() error) error {
	for {
		err := do()
		if !isFull(err) {
			return s.check(err)
		}
		if s.ballast.spend() {
			continue
		}
		if s.opening.Load() {
			return mqerr.New(mqerr.DiskFull, "the controller's disk is full: make room for %d MiB in %s and start again: %w", 3*ballastBytes>>20, s.ballast.dir, err)
		}
		timer := time.NewTimer(fullPause)
		select {
		case <-timer.C:
		case <-s.closing:
			timer.Stop()
			return err
		}
	}
}
