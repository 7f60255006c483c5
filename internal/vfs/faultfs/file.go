package faultfs

import (
	"io/fs"
	"syscall"

	"github.com/perigee-mq/perigee/internal/vfs"
)

type file struct {
	vfs.File
	fs   *FS
	name string
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.try(OpRead, f.name); err != nil {
		return 0, err
	}
	if f.fs.lost(f.name, off, len(b)) {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: syscall.EIO}
	}
	return f.File.ReadAt(b, off)
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	short, err := f.fs.act(OpWrite, f.name)
	switch {
	case err != nil && short:
		n, wrote := f.File.WriteAt(b[:len(b)/2], off)
		if wrote != nil {
			err = wrote
		}
		return n, err
	case err != nil:
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

// Allocate implements vfs.File.
func (f *file) Allocate(size int64) error {
	if err := f.fs.try(OpAllocate, f.name); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if err := f.fs.try(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// Size implements vfs.File.
func (f *file) Size() (int64, error) {
	if err := f.fs.try(OpStat, f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	if err := f.fs.try(OpTruncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// ZeroRange implements vfs.File.
func (f *file) ZeroRange(off, n int64) error {
	if err := f.fs.try(OpZeroRange, f.name); err != nil {
		return err
	}
	return f.File.ZeroRange(off, n)
}

// Map implements vfs.File.
func (f *file) Map(off int64, n int) ([]byte, func() error, error) {
	if err := f.fs.try(OpMap, f.name); err != nil {
		return nil, nil, err
	}
	return f.File.Map(off, n)
}
