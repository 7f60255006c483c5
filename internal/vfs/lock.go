package vfs

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Lock holds flock on the file, which ends with the process however it ends. The file holds the number
// of the process for people to read; it stays there.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	err = retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(LockedError(name, holder(f)), f.Close())
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "flock", Path: name, Err: err}, f.Close())
	}
	pid := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.WriteAt(pid, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func holder(f *os.File) string {
	text := make([]byte, 20)
	n, _ := f.ReadAt(text, 0)
	if pid := strings.TrimSpace(string(text[:n])); pid != "" {
		return "process " + pid
	}
	return "another process"
}

// LockedError is what Lock returns when somebody else holds the lock.
func LockedError(name, holder string) error {
	return mqerr.New(mqerr.Exists, "%s is locked by %s: stop it first, or use another data directory", name, holder)
}
