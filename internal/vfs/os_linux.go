package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

func (f *osFile) Allocate(size int64) error {
	err := f.control("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.allocateSlowly(size)
	}
	return err
}

func (f *osFile) Sync() error { return f.control("fdatasync", unix.Fdatasync) }

func (f *osFile) ZeroRange(off, n int64) error {
	if n <= 0 {
		return nil
	}
	err := f.control("fallocate zero range", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_ZERO_RANGE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return f.zeroSlowly(off, n)
	}
	return err
}
