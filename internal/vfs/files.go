package vfs

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
)

// TempSuffix is the ending of files that ReplaceFile has not finished. What is found with it after a
// start is of no use.
const TempSuffix = ".tmp"

// IsFull tells whether an operation failed because the file system, or a quota of it, has no space left.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// ReplaceFile makes data the whole content of a file, durably: after a crash at any moment the file has
// its old content or the new one. Two calls for one name must not run at once.
func ReplaceFile(fs FS, name string, data []byte) error {
	temp := name + TempSuffix
	if err := writeFile(fs, temp, data); err != nil {
		return errors.Join(err, fs.Remove(temp))
	}
	if err := fs.Rename(temp, name); err != nil {
		return errors.Join(err, fs.Remove(temp))
	}
	return fs.SyncDir(filepath.Dir(name))
}

func writeFile(fs FS, name string, data []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// ReadFile returns the whole content of a file.
func ReadFile(fs FS, name string) ([]byte, error) {
	f, err := fs.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); err != nil && (!errors.Is(err, io.EOF) || int64(n) < size) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}
