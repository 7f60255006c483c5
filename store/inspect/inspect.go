// Package inspect reads the directory of a stopped broker without changing it: dump the log, list a
// queue, check everything and say where something is wrong. It writes to an io.Writer and knows
// nothing of command lines.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Dir is an open directory. While it is open no broker can start on it.
type Dir struct {
	fs   vfs.FS
	path string
	lock io.Closer
	log  *commitlog.Log
}

// nested is where `perigee dev` keeps its broker's directory.
const nested = "broker"

// Open opens a broker's directory, or that of a whole dev process. One that a process has is refused.
func Open(f vfs.FS, path string) (*Dir, error) {
	root, err := find(f, path)
	if err != nil {
		return nil, err
	}
	lock, err := f.Lock(filepath.Join(root, store.LockName))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	d := &Dir{fs: f, path: root, lock: lock}
	tail, err := store.Tail(f, root)
	if err == nil {
		d.log, err = commitlog.Open(commitlog.Options{FS: f, Dir: filepath.Join(root, store.LogDir), ReadOnly: true, Tail: tail})
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// Find returns the broker's directory within a path: that itself, or a part of a dev process's.
func Find(f vfs.FS, path string) (string, error) { return find(f, path) }

// find returns the directory that holds a log.
func find(f vfs.FS, path string) (string, error) {
	for _, p := range []string{path, filepath.Join(path, nested)} {
		info, err := f.Stat(filepath.Join(p, store.LogDir))
		if err == nil && info.Dir {
			return p, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", mqerr.New(mqerr.NotFound, "%s is no data directory of a broker: there is no %s in it", path, store.LogDir)
}

// Path is the broker's directory.
func (d *Dir) Path() string { return d.path }

// Close lets go of the directory.
func (d *Dir) Close() error { return errors.Join(d.log.Close(), d.lock.Close()) }

// Tail says where the log ends.
type Tail struct {
	End     record.Pos
	Records int64
	// Damage is the first damage that was found below what was once durable, At where; nil if the log is whole.
	Damage error
	At     record.Pos
	// Torn is what stood at the end instead of a record; a crash leaves such, and the next start cuts it.
	Torn error
}

// past reads all records from a position on and tells lost of each part that cannot be read: holes that are
// known, and damage.
func (d *Dir) past(from record.Pos, fn func(record.Record) error, lost func(commitlog.Past) error) (Tail, error) {
	t := Tail{End: from}
	stopped := false
	end, torn, err := d.log.ScanPast(from, func(r record.Record) error {
		t.Records++
		err := fn(r)
		stopped = err != nil
		return err
	}, func(p commitlog.Past) error {
		if !p.Known && t.Damage == nil {
			t.Damage, t.At = mqerr.New(mqerr.Corrupt, "%s: %s", p.Hole, p.Why), p.From
		}
		return lost(p)
	})
	t.End, t.Torn = end, torn
	if stopped {
		t.Torn = nil
	}
	return t, err
}

// checkpoints returns the newest checkpoint that can be used and those that cannot.
func (d *Dir) checkpoints() (*checkpoint.Checkpoint, []checkpoint.Damaged, error) {
	return store.Checkpoints(d.fs, d.path, d.log)
}

// queues opens the consume queues as a checkpoint has them.
func (d *Dir) queues(c *checkpoint.Checkpoint) (*queue.Store, error) {
	q, err := queue.Open(queue.Options{FS: d.fs, Dir: filepath.Join(d.path, store.QueueDir), ReadOnly: true})
	if err != nil {
		return nil, err
	}
	data, err := c.Section(queue.Section)
	if err == nil {
		err = q.Decode(data)
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}
