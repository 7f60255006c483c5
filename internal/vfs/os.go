package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the operating system's file system.
var OS FS = osFS{}

const (
	filePerm = 0o640
	dirPerm  = 0o750
)

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) Open(name string) (File, error)     { return open(name, os.O_RDWR) }
func (osFS) OpenRead(name string) (File, error) { return open(name, os.O_RDONLY) }

func open(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, filePerm)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, raw: raw}, nil
}

func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (o osFS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := o.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, dirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return o.SyncDir(parent)
}

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: info.Size(), Dir: info.IsDir()}, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Usage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := retry(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return Usage{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	block := uint64(st.Bsize)
	return Usage{Total: st.Blocks * block, Free: uint64(st.Bavail) * block}, nil
}

// osFile keeps the *os.File referenced: a bare descriptor would be closed when that is collected.
type osFile struct {
	*os.File
	raw syscall.RawConn
}

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Map(off int64, n int) ([]byte, func() error, error) {
	var data []byte
	err := f.control("mmap", func(fd int) (err error) {
		data, err = unix.Mmap(fd, off, n, unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return data, func() error { return unix.Munmap(data) }, nil
}

// control runs call with the descriptor, which stays open meanwhile, again after EINTR.
func (f *osFile) control(op string, call func(fd int) error) error {
	var err error
	if closed := f.raw.Control(func(fd uintptr) {
		err = retry(func() error { return call(int(fd)) })
	}); closed != nil {
		err = closed
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

func retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// zeroChunk bounds the memory of the slow ways to write zeros, in bytes.
const zeroChunk = 1 << 20

// allocateSlowly appends written zeros up to size: only written blocks are surely there.
func (f *osFile) allocateSlowly(size int64) error {
	at, err := f.Size()
	if err != nil {
		return err
	}
	zero := make([]byte, zeroChunk)
	for at < size {
		n, err := f.WriteAt(zero[:min(size-at, zeroChunk)], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// zeroSlowly makes a range read as zero where the file system cannot do it by itself: it reads, and
// writes only what is not zero yet.
func (f *osFile) zeroSlowly(off, n int64) error {
	buf, zero := make([]byte, zeroChunk), make([]byte, zeroChunk)
	for n > 0 {
		part := buf[:min(n, zeroChunk)]
		if _, err := f.ReadAt(part, off); err != nil {
			return err
		}
		if !allZero(part) {
			if _, err := f.WriteAt(zero[:len(part)], off); err != nil {
				return err
			}
		}
		off, n = off+int64(len(part)), n-int64(len(part))
	}
	return nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
