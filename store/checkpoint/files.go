package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

const (
	suffix = ".ck"
	// Keep is how many checkpoints stay on disk.
	Keep = 2
	// AsideName is the last checkpoint that could not be used, kept for people to look at.
	AsideName = "aside"
)

// Name is the file name of the checkpoint at a position.
func Name(pos record.Pos) string { return fmt.Sprintf("%020d%s", int64(pos), suffix) }

// ParseName is the reverse of Name; ok is false for the name of any other file.
func ParseName(name string) (pos record.Pos, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return record.Pos(n), ok && err == nil && len(digits) == 20 && n >= 0
}

// List returns the names of the checkpoint files of a directory, oldest first; none if there is no such
// directory.
func List(f vfs.FS, dir string) ([]string, error) {
	all, err := f.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(n string) bool { _, ok := ParseName(n); return !ok }), err
}

// Save writes a checkpoint into a directory, durably, and removes all but the last two. A crash at any
// moment leaves the ones before. Those of later positions are of a log that is no more: they go too.
func Save(f vfs.FS, dir string, c Checkpoint) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := c.replace(f, filepath.Join(dir, Name(c.Pos))); err != nil {
		return fmt.Errorf("checkpoint at %d: %w", c.Pos, err)
	}
	if err := removeOld(f, dir, c.Pos); err != nil {
		return fmt.Errorf("remove old checkpoints: %w", err)
	}
	return nil
}

func (c *Checkpoint) replace(f vfs.FS, path string) error {
	temp := path + vfs.TempSuffix
	err := c.write(f, temp)
	if err == nil {
		err = f.Rename(temp, path)
	}
	if err != nil {
		if gone := f.Remove(temp); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	}
	return f.SyncDir(filepath.Dir(path))
}

func (c *Checkpoint) write(f vfs.FS, path string) error {
	file, err := f.Create(path)
	if err != nil {
		return err
	}
	w := writer{file: file}
	err = c.pieces(w.put)
	if err == nil {
		err = w.flush()
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// gather is how many bytes of small pieces are written at a time.
const gather = 256 << 10

// writer appends pieces to a file, small ones together.
type writer struct {
	file vfs.File
	off  int64
	buf  []byte
}

func (w *writer) put(b []byte) error {
	if len(w.buf)+len(b) > gather {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(b) > gather {
		return w.write(b)
	}
	w.buf = append(w.buf, b...)
	return nil
}

func (w *writer) flush() error {
	err := w.write(w.buf)
	w.buf = w.buf[:0]
	return err
}

func (w *writer) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	_, err := w.file.WriteAt(b, w.off)
	w.off += int64(len(b))
	return err
}

// removeOld keeps the checkpoint at newest and the one before it, and nothing that a crash left behind.
func removeOld(f vfs.FS, dir string, newest record.Pos) error {
	all, err := f.List(dir)
	if err != nil {
		return err
	}
	var kept []string
	for _, name := range all {
		if pos, ok := ParseName(name); ok && pos <= newest {
			kept = append(kept, name)
		}
	}
	kept = kept[max(0, len(kept)-Keep):]
	for _, name := range all {
		if _, ok := ParseName(strings.TrimSuffix(name, vfs.TempSuffix)); !ok || slices.Contains(kept, name) {
			continue
		}
		if err := f.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Damaged is a checkpoint file that cannot be used: its bytes are damaged, or it is of another log.
type Damaged struct {
	Name string
	Err  error
}

// Load returns the newest checkpoint that is whole and fits, nil if there is none, and the newer ones that
// are or do not. fits returns an error for one that is of no use; nil takes any. An error is of the directory, of
// fits (other than Corrupt), or of kind Unsupported: the newest is of a later release.
func Load(f vfs.FS, dir string, fits func(*Checkpoint) error) (*Checkpoint, []Damaged, error) {
	names, err := List(f, dir)
	if err != nil {
		return nil, nil, err
	}
	var damaged []Damaged
	for _, name := range slices.Backward(names) {
		c, err := Read(f, filepath.Join(dir, name))
		if err == nil && fits != nil {
			if err = fits(c); err != nil && !mqerr.Is(err, mqerr.Corrupt) {
				return nil, damaged, err
			}
		}
		switch {
		case err == nil:
			return c, damaged, nil
		case mqerr.Is(err, mqerr.Unsupported):
			return nil, damaged, err
		}
		damaged = append(damaged, Damaged{Name: name, Err: err})
	}
	return nil, damaged, nil
}

// Read returns the checkpoint in a file, verified.
func Read(f vfs.FS, path string) (*Checkpoint, error) {
	b, err := vfs.ReadFile(f, path)
	if err != nil {
		return nil, err
	}
	c, err := Decode(b)
	if err != nil {
		return nil, mqerr.New(mqerr.KindOf(err), "%s: %w", path, err)
	}
	if name := filepath.Base(path); Name(c.Pos) != name {
		return nil, mqerr.New(mqerr.Corrupt, "%s: it is the checkpoint at %d, the file was renamed", path, c.Pos)
	}
	return c, nil
}

// SetAside gives a checkpoint that cannot be used another name, durably, so that no start meets it again
// and none that can be used is removed in its place. Only the last one is kept.
func SetAside(f vfs.FS, dir, name string) error {
	if err := f.Rename(filepath.Join(dir, name), filepath.Join(dir, AsideName)); err != nil {
		return err
	}
	return f.SyncDir(dir)
}

// Forget removes all checkpoints, durably; the newest is set aside. The next start replays the whole log.
func Forget(f vfs.FS, dir string) error {
	names, err := List(f, dir)
	if err != nil || len(names) == 0 {
		return err
	}
	// Oldest first: a crash in between must not bring an older one to light.
	for _, name := range names[:len(names)-1] {
		if err := f.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if len(names) > 1 {
		if err := f.SyncDir(dir); err != nil {
			return err
		}
	}
	return SetAside(f, dir, names[len(names)-1])
}
