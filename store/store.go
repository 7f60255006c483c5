// Package store is one broker's directory: its log, its consume queues, its index, the checkpoints of its views,
// and the small files that say whose it is. The type Store wires them and holds no rules.
// docs/format/directory.md draws the directory.
package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/dedup"
	"github.com/perigee-mq/perigee/store/index"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Options configures Open. The zero value of a field means its default.
type Options struct {
	// FS is the file system. Default: the machine's.
	FS vfs.FS
	// Dir is the directory; it is made if it is missing. Required.
	Dir string
	// SegmentBytes is the size of one commit-log file. Default 1 GiB.
	SegmentBytes int64
	// DropRate is how many bytes of deleted commit-log files are given back to the disk in a second. Default 256 MiB.
	DropRate int64
	// QueueFileBytes is the size of one file of the consume queues. Default 16 MiB.
	QueueFileBytes int64
	// IndexRunEntries is how many entries of the index make one file. Default 65,536.
	IndexRunEntries int
	// DuplicateWindow is how long message ids are remembered, DuplicateBytes the most memory for that. Defaults
	// 10 minutes (below 0: not at all) and 64 MiB.
	DuplicateWindow time.Duration
	DuplicateBytes  int64
	// SkipDamage makes a start go on behind damaged and missing records of the log instead of refusing them.
	SkipDamage bool
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
	// LogEvents are the commit log's events.
	LogEvents commitlog.Events
}

// Names in the directory.
const (
	LockName      = "LOCK"
	identityName  = "identity.json"
	promiseName   = "promise.json"
	cleanName     = "clean.json"
	LogDir        = "log"
	QueueDir      = "queue"
	IndexDir      = "index"
	DedupDir      = "dedup"
	CheckpointDir = "checkpoint"
)

// Store is an open directory. It has no goroutines of its own.
type Store struct {
	o          Options
	lock       io.Closer
	log        *commitlog.Log
	queues     *queue.Store
	dups       *dedup.Window
	index      *index.Store
	checkpoint *checkpoint.Checkpoint
	identity   Identity
	promise    promise
	clean      *Marker
	copying    *copying             // since Anew, until Copied
	aside      []checkpoint.Damaged // checkpoints to be set aside
	setAside   atomic.Int64
	judge      func() error // the views' own word before anything is changed

	ballast ballast

	saving     sync.Mutex // guards the checkpoint files, and what follows
	distrusted bool
	saved      record.Pos // position of the newest checkpoint, -1 if there is none
}

// Open takes the directory for this process and opens what is in it. The log still has to be
// recovered. A directory that another process has, that another release wrote, or that is damaged in
// its small files is refused with a sentence that says what to do.
func Open(o Options) (*Store, error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	lock, err := o.FS.Lock(filepath.Join(o.Dir, LockName))
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	s := &Store{o: o, lock: lock, saved: -1}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open opens the parts. What a crash in here leaves is opened the same way again.
func (s *Store) open() (err error) {
	if s.identity, err = readIdentity(s.o.FS, s.o.Dir); err != nil {
		return err
	}
	if s.promise, err = readPromise(s.o.FS, s.path(promiseName)); err != nil {
		return err
	}
	if err := s.resumeAnew(); err != nil {
		return err
	}
	for _, dir := range []string{LogDir, QueueDir, DedupDir, CheckpointDir} {
		if err := s.o.FS.MkdirAll(s.path(dir)); err != nil {
			return err
		}
	}
	if s.clean, err = readMarker(s.o.FS, s.o.Dir); err != nil {
		return err
	}
	s.log, err = commitlog.Open(commitlog.Options{
		FS: s.o.FS, Dir: s.path(LogDir), SegmentBytes: s.o.SegmentBytes, DropRate: s.o.DropRate, Log: s.o.Log, Events: s.o.LogEvents,
		SkipDamage: s.o.SkipDamage, Tail: s.clean.tail(), Settling: s.settle,
	})
	if err != nil {
		return err
	}
	if s.queues, err = queue.Open(queue.Options{FS: s.o.FS, Dir: s.path(QueueDir), FileBytes: s.o.QueueFileBytes, Log: s.o.Log}); err != nil {
		return err
	}
	s.dups = dedup.New(dedup.Options{FS: s.o.FS, Dir: s.path(DedupDir), Window: s.o.DuplicateWindow, Bytes: s.o.DuplicateBytes, Log: s.o.Log})
	if s.index, err = index.Open(index.Options{FS: s.o.FS, Dir: s.path(IndexDir), RunEntries: s.o.IndexRunEntries, First: s.log.First, Log: s.o.Log}); err != nil {
		return err
	}
	return s.loadCheckpoint()
}

// SetAside is how many checkpoints this start found that could not be used: damaged, or of another log.
func (s *Store) SetAside() int64 { return s.setAside.Load() }

func (s *Store) path(name string) string { return filepath.Join(s.o.Dir, name) }

// Skips tells whether a start goes on behind damaged and missing records.
func (s *Store) Skips() bool { return s.o.SkipDamage }

// Log is the commit log.
func (s *Store) Log() *commitlog.Log { return s.log }

// Queues are the consume queues.
func (s *Store) Queues() *queue.Store { return s.queues }

// Duplicates is the duplicate window.
func (s *Store) Duplicates() *dedup.Window { return s.dups }

// Index finds messages by key and id.
func (s *Store) Index() *index.Store { return s.index }

// Checkpoint is the newest whole checkpoint as of Open, nil if there is none.
func (s *Store) Checkpoint() *checkpoint.Checkpoint { return s.checkpoint }

// SaveCheckpoint makes the state that the views had when the log ended at a place durable: first the log up to
// there, because a checkpoint must not know more than the log, then the queues' extents, then the file, which names
// its log. It may run beside appends, one at a time. After Distrust it saves nothing and returns an error of kind
// Corrupt.
func (s *Store) SaveCheckpoint(at commitlog.Tail, sections []checkpoint.Section) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if s.distrusted {
		return mqerr.New(mqerr.Corrupt, "the views of %s are damaged: there is no checkpoint until a start has rebuilt them from the log", s.o.Dir)
	}
	of, err := s.identity.origin(at)
	if err != nil {
		return err
	}
	if s.log.Durable() < at.End {
		if err := s.log.Sync(); err != nil {
			return err
		}
	}
	if err := errors.Join(s.queues.Sync(), s.dups.Sync()); err != nil {
		return err
	}
	if err := checkpoint.Save(s.o.FS, s.path(CheckpointDir), checkpoint.Checkpoint{Pos: at.End, Sections: append(slices.Clip(sections), of)}); err != nil {
		return err
	}
	s.saved = at.End
	return errors.Join(s.queues.Saved(), s.dups.Saved())
}

// HasCheckpoints tells whether there is a checkpoint, of use or not, that Forget would give up.
func (s *Store) HasCheckpoints() (bool, error) {
	names, err := checkpoint.List(s.o.FS, s.path(CheckpointDir))
	return len(names) > 0, err
}

// Forget gives up every checkpoint and empties queues and index, for a rebuild of all views from the log. The
// newest checkpoint is kept under another name for people to look at.
func (s *Store) Forget() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if err := s.forgetLocked(); err != nil {
		return err
	}
	// A checkpoint that somebody removed by hand must not come back when its extents have been used again.
	if err := s.o.FS.SyncDir(s.path(CheckpointDir)); err != nil {
		return err
	}
	if s.checkpoint != nil {
		s.setAside.Add(1) // whole, and yet of no use
	}
	s.checkpoint = nil
	s.queues.Reset()
	s.dups.Reset()
	s.index.Reset()
	return nil
}

// Distrust gives up every checkpoint, and those to come, and leaves the views as they are: the next start
// rebuilds them from the log. It is for a view that is found to be damaged while it is in use, and waits
// for a checkpoint that is being saved.
func (s *Store) Distrust() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.distrusted = true
	return s.forgetLocked()
}

func (s *Store) forgetLocked() error {
	if err := checkpoint.Forget(s.o.FS, s.path(CheckpointDir)); err != nil {
		return fmt.Errorf("give up the checkpoints in %s: %w", s.path(CheckpointDir), err)
	}
	s.saved = -1
	s.tellAside()
	return nil
}

// Usage tells how full the file system is that holds the directory.
func (s *Store) Usage() (vfs.Usage, error) { return s.o.FS.Usage(s.o.Dir) }

// CloseClean closes the store after a last checkpoint and leaves the marker that vouches for the log's
// end. Nothing may be appended any more.
func (s *Store) CloseClean(incarnation uint64) error {
	if err := s.log.Sync(); err != nil {
		return errors.Join(err, s.Close())
	}
	last := s.log.Last()
	m := Marker{Incarnation: incarnation, End: s.log.Durable(), Last: last.Pos, CRC: last.CRC}
	return errors.Join(m.write(s.o.FS, s.path(cleanName)), s.Close())
}

// Close lets go of the directory. What was not synced stays as it is.
func (s *Store) Close() error {
	var errs []error
	if s.queues != nil {
		errs = append(errs, s.queues.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}
