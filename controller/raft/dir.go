package raft

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

const (
	dirFormat  = "perigee controller"
	dirVersion = 1
)

// version is the content of DIR/VERSION.
type version struct {
	Format  string `json:"format"`
	V       int    `json:"v"`
	Release string `json:"release"` // that made the directory
	ID      string `json:"id"`      // of the node
	Founded bool   `json:"founded"` // there is a log: it can't be missing
	identity
}

// dir is a data directory in use by this process.
type dir struct {
	path string
	lock *os.File
	v    version
}

// openDir locks the directory and checks that it is ours and of this node; an empty one becomes so.
func openDir(path, id, release string) (*dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, mqerr.New(mqerr.Invalid, "controller directory: %w", err)
	}
	if err := checkForeign(path); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(path, "LOCK"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, mqerr.New(mqerr.Invalid, "controller directory: %w", err)
	}
	d := &dir{path: path, lock: lock}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(mqerr.New(mqerr.Exists, "controller directory %s is in use by another process", path), lock.Close())
	}
	if err := d.check(id, release); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// checkForeign refuses a directory with other people's files before anything is written to it.
func checkForeign(path string) error {
	if _, err := os.Stat(filepath.Join(path, "VERSION")); err == nil {
		return nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return mqerr.New(mqerr.Invalid, "controller directory: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"LOCK", "VERSION.tmp", "lost+found"}, e.Name()) {
			return mqerr.New(mqerr.Invalid, "directory %s holds files that are no controller's (%s): choose an empty one", path, e.Name())
		}
	}
	return nil
}

func (d *dir) check(id, release string) error {
	b, err := os.ReadFile(filepath.Join(d.path, "VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		d.v = version{Format: dirFormat, V: dirVersion, Release: release, ID: id}
		return d.write()
	}
	if err != nil {
		return mqerr.New(mqerr.Invalid, "controller directory: %w", err)
	}
	switch err := json.Unmarshal(b, &d.v); {
	case err != nil:
		return mqerr.New(mqerr.Corrupt, "file %s does not say what this directory is: %w", filepath.Join(d.path, "VERSION"), err)
	case d.v.Format != dirFormat:
		return mqerr.New(mqerr.Invalid, "directory %s is one of %q, not of a controller: choose another one", d.path, d.v.Format)
	case d.v.V != dirVersion:
		return mqerr.New(mqerr.Unsupported, "controller directory %s has format %d, this release knows %d: run release %q or a later one", d.path, d.v.V, dirVersion, d.v.Release)
	case d.v.ID != id:
		return mqerr.New(mqerr.Invalid, "directory %s belongs to controller %q, not to %q: start it with its own id", d.path, d.v.ID, id)
	}
	return nil
}

// found notes that the log exists now.
func (d *dir) found() error {
	if d.v.Founded {
		return nil
	}
	d.v.Founded = true
	return d.write()
}

// write replaces VERSION durably.
func (d *dir) write() error {
	b, err := json.Marshal(d.v)
	if err != nil {
		return err
	}
	temp := filepath.Join(d.path, "VERSION.tmp")
	f, err := os.Create(temp)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(d.path, "VERSION")); err != nil {
		return err
	}
	parent, err := os.Open(d.path)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// close gives the lock back.
func (d *dir) close() error { return d.lock.Close() }
