package raft

import (
	"errors"
	"sync/atomic"

	hraft "github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// store reports write errors: the library would go on with a log that may have a hole. A disk without space
// is none: the write waits.
type store struct {
	*raftboltdb.BoltStore
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
	return s.write(func() error { return s.BoltStore.StoreLog(l) })
}

// StoreLogs stores entries.
func (s *store) StoreLogs(l []*hraft.Log) error {
	return s.write(func() error { return s.BoltStore.StoreLogs(l) })
}

// DeleteRange deletes entries.
func (s *store) DeleteRange(first, last uint64) error {
	return s.write(func() error { return s.BoltStore.DeleteRange(first, last) })
}

// Set stores a vote or a term.
func (s *store) Set(k, v []byte) error { return s.write(func() error { return s.BoltStore.Set(k, v) }) }

// SetUint64 stores a term.
func (s *store) SetUint64(k []byte, v uint64) error {
	return s.write(func() error { return s.BoltStore.SetUint64(k, v) })
}
