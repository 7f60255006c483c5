package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/perigee-mq/perigee/internal/doctor"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/inspect"
)

// lookAtDir looks at a data directory. It changes nothing that is there.
func lookAtDir(path string) *doctor.Dir {
	d := &doctor.Dir{Path: path, Checkpoint: -1}
	root, err := inspect.Find(vfs.OS, path)
	if err != nil {
		d.Error = err.Error()
		return d
	}
	d.Path = root
	if info, err := os.Stat(root); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			owner, user := st.Uid, uint32(os.Geteuid())
			d.Owner, d.User = &owner, &user
		}
	}
	if u, err := vfs.OS.Usage(root); err == nil {
		d.Free, d.Total = u.Free, u.Total
	}
	if _, err := store.IdentityOf(vfs.OS, root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Refused = err.Error()
	}
	d.Syncs = trySync(root)
	open, err := inspect.Open(vfs.OS, path)
	if err != nil {
		if d.Locked = mqerr.Is(err, mqerr.Exists); !d.Locked {
			d.Checked, d.Damage = true, []string{err.Error()}
		}
		return d
	}
	defer func() { _ = open.Close() }()
	if d.Refused != "" {
		return d // of a format that is not known
	}
	q, err := open.Look()
	if err != nil {
		d.Checked, d.Damage = true, []string{err.Error()}
		return d
	}
	d.Checked, d.LogEnd, d.Checkpoint, d.Damage, d.Leftovers = true, int64(q.End), int64(q.Checkpoint), q.Faults, q.Leftovers
	return d
}

// Writes with fdatasync that are tried.
const (
	syncTries = 20
	syncBytes = 4096
)

// trySync measures small writes with fdatasync beside the files of a directory; none if it cannot be written.
func trySync(dir string) (took []time.Duration) {
	name := filepath.Join(dir, fmt.Sprintf("doctor-%d%s", os.Getpid(), vfs.TempSuffix))
	f, err := vfs.OS.Create(name)
	if err != nil {
		return nil
	}
	defer func() { _ = errors.Join(f.Close(), vfs.OS.Remove(name)) }()
	page := make([]byte, syncBytes)
	for i := range syncTries {
		began := time.Now()
		if _, err := f.WriteAt(page, int64(i)*syncBytes); err != nil {
			return took
		}
		if err := f.Sync(); err != nil {
			return took
		}
		took = append(took, time.Since(began))
	}
	return took
}
