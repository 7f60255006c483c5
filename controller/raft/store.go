package raft

import (
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"
	"time"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// LogStore keeps entries and votes. What it has taken is durable.
type LogStore interface {
	hraft.LogStore
	hraft.StableStore
	io.Closer
}

// openBolt opens the log of a directory.
func openBolt(dir string) (LogStore, error) {
	return raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(dir, "raft.db"),
		// The free list is found again by a scan at the start: one page less to write per command.
		BoltOptions: &bbolt.Options{Timeout: time.Second, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	})
}

// store reports write errors: the library would go on with a log that may have a hole. A disk without space
// is none: the write waits.
type store struct {
	LogStore
	fail    func(error)
	ballast *ballast
	closing chan struct{} // closed when the node stops: nobody waits for space then
	// opening: the node is not there yet, so that nobody could stop a write that waits for space.
	opening atomic.Bool
}

func (s *store) check(err error) error {
	if err != nil && !errors.Is(err, berrors.ErrDatabaseNotOpen) {
		s.fail(mqerr.New(mqerr.Corrupt, "the controller's log can't be written: %w", err))
	}
	return err
}

// StoreLog stores one entry.
func (s *store) StoreLog(l *hraft.Log) error {
	return s.write(func() error { return s.LogStore.StoreLog(l) })
}

// StoreLogs stores entries.
func (s *store) StoreLogs(l []*hraft.Log) error {
	return s.write(func() error { return s.LogStore.StoreLogs(l) })
}

// DeleteRange deletes entries.
func (s *store) DeleteRange(first, last uint64) error {
	return s.write(func() error { return s.LogStore.DeleteRange(first, last) })
}

// Set stores a vote or a term.
func (s *store) Set(k, v []byte) error { return s.write(func() error { return s.LogStore.Set(k, v) }) }

// SetUint64 stores a term.
func (s *store) SetUint64(k []byte, v uint64) error {
	return s.write(func() error { return s.LogStore.SetUint64(k, v) })
}
