package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// copyName is the file that says that the log is being copied from another replica, from a position on.
const copyName = "copy.json"

// copying is its content. While Emptied is not set, what was in the directory before is still going.
type copying struct {
	At      record.Pos `json:"at"`
	Emptied bool       `json:"emptied"`
	Sum     string     `json:"sum"` // of what stands before: a wrong one must not cost a log
}

func (c *copying) sum() string {
	b := fmt.Appendf(nil, "%d %v", c.At, c.Emptied)
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func readCopying(f vfs.FS, dir string) (*copying, error) {
	path := filepath.Join(dir, copyName)
	b, err := vfs.ReadFile(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeCopying(path, b)
}

func decodeCopying(path string, b []byte) (*copying, error) {
	var c copying
	if err := json.Unmarshal(b, &c); err != nil || c.Sum != c.sum() || c.At < 0 || c.At%record.Align != 0 {
		return nil, mqerr.New(mqerr.Corrupt, "%s is damaged: this replica was copying the log of another one; if that one is well, remove this directory and start anew with a new --id", path)
	}
	return &c, nil
}

func (c copying) write(f vfs.FS, dir string) error {
	c.Sum = c.sum()
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return vfs.ReplaceFile(f, filepath.Join(dir, copyName), append(b, '\n'))
}

// Anew empties a directory that no process has, so that the log of another replica can be copied into it from a
// position on, where that one begins. Identity and promise stay. From then on Copying says so, until Copied. A crash
// on the way leaves the directory as it was, or the next Open goes on.
func Anew(o Options, at record.Pos) error {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if at < 0 || at%record.Align != 0 {
		return mqerr.New(mqerr.Invalid, "no log begins at position %d", at)
	}
	lock, err := o.FS.Lock(filepath.Join(o.Dir, LockName))
	if err != nil {
		return fmt.Errorf("data directory %s: %w", o.Dir, err)
	}
	c := copying{At: at}
	if err = c.write(o.FS, o.Dir); err == nil {
		err = c.empty(o)
	}
	return errors.Join(err, lock.Close())
}

// empty removes everything but identity and promise, and lets the log begin at the position.
func (c *copying) empty(o Options) error {
	if err := dropMarker(o.FS, o.Dir); err != nil {
		return err
	}
	for _, name := range []string{CheckpointDir, QueueDir, IndexDir, DedupDir, LogDir} {
		dir := filepath.Join(o.Dir, name)
		if err := o.FS.MkdirAll(dir); err != nil {
			return err
		}
		names, err := o.FS.List(dir)
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := o.FS.Remove(filepath.Join(dir, n)); err != nil {
				return err
			}
		}
		if err := o.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	size := o.SegmentBytes
	if size == 0 {
		size = 1 << 30
	}
	s, err := segment.Create(o.FS, filepath.Join(o.Dir, LogDir), c.At, size)
	if err != nil {
		return err
	}
	s.Close()
	c.Emptied = true
	return c.write(o.FS, o.Dir)
}

// resumeAnew ends what a crash has interrupted.
func (s *Store) resumeAnew() (err error) {
	if s.copying, err = readCopying(s.o.FS, s.o.Dir); err != nil || s.copying == nil || s.copying.Emptied {
		return err
	}
	return s.copying.empty(s.o)
}

// Copying tells that the log is being copied from another replica, since Anew, and where it begins. Until there is a
// complete SNAPSHOT in it, no views can be made of it.
func (s *Store) Copying() (at record.Pos, is bool) {
	if s.copying == nil {
		return 0, false
	}
	return s.copying.At, true
}

// Copied ends that: views can be made of the log.
func (s *Store) Copied() error {
	if s.copying == nil {
		return nil
	}
	if err := s.o.FS.Remove(s.path(copyName)); err != nil {
		return err
	}
	s.copying = nil
	return s.o.FS.SyncDir(s.o.Dir)
}
