package simtest

import (
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// slowFS is a disk that needs its time to make things durable.
type slowFS struct {
	*memfs.FS
	sync atomic.Int64 // nanoseconds
}

func (s *slowFS) wait() { time.Sleep(time.Duration(s.sync.Load())) }

// SyncDir implements vfs.FS.
func (s *slowFS) SyncDir(dir string) error {
	s.wait()
	return s.FS.SyncDir(dir)
}

// Create implements vfs.FS.
func (s *slowFS) Create(name string) (vfs.File, error) { return s.file(s.FS.Create(name)) }

// Open implements vfs.FS.
func (s *slowFS) Open(name string) (vfs.File, error) { return s.file(s.FS.Open(name)) }

func (s *slowFS) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &slowFile{f, s}, nil
}

type slowFile struct {
	vfs.File
	s *slowFS
}

// Sync implements vfs.File.
func (f *slowFile) Sync() error {
	f.s.wait()
	return f.File.Sync()
}
