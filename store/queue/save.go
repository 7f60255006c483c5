package queue

import (
	"errors"
	"fmt"
)

// Encode appends the directory of all queues to dst, for a checkpoint: equal stores give equal bytes. It
// writes the buffered entries into their extents first, and drops the buffers of queues that nothing was
// appended to since the last Encode.
//
// An error says that the files cannot take what they must: no checkpoint may be saved now, and nothing else
// has changed. It syncs nothing, so that the owner of the view need not wait for the disk: Sync, which may run beside
// further appends, must have returned before the checkpoint is durable, and Saved is to be called after.
// store.Store.SaveCheckpoint does both. Of two checkpoints the first is to be saved or given up before
// the second is encoded.
func (s *Store) Encode(dst []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	if err := s.files.settle(); err != nil {
		return nil, err
	}
	s.sortLocked()
	for _, q := range s.warm {
		if err := s.flushLocked(q, q.tail()); err != nil {
			return nil, err
		}
	}
	if err := s.files.settle(); err != nil {
		return nil, err
	}
	kept := s.warm[:0]
	for _, q := range s.warm {
		if q.active {
			q.active = false
			kept = append(kept, q)
			continue
		}
		s.dropBufferLocked(q)
	}
	clear(s.warm[len(kept):])
	s.warm = kept
	s.encodes++
	return s.appendDirectory(dst), nil
}

// Sync makes the extents that an earlier Encode wrote durable, and the files' names. A failure is final:
// what is on disk is unknown, so that no checkpoint may rely on it.
func (s *Store) Sync() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	if s.failed != nil {
		s.mu.Unlock()
		return s.failed
	}
	dirty, named := s.files.takeDirty()
	s.mu.Unlock()

	var errs []error
	for _, v := range dirty {
		errs = append(errs, v.Sync())
	}
	if named {
		errs = append(errs, s.o.FS.SyncDir(s.o.Dir))
	}
	if err := errors.Join(errs...); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed = fmt.Errorf("sync of queue files failed, the queues are rebuilt from the log at the next start: %w", err)
		return s.failed
	}
	return nil
}

// Saved says that the checkpoint of the last Encode is durable and that only it and the one before it
// are kept. Extents that neither names may be used again from now on.
func (s *Store) Saved() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files.saved(s.encodes)
}

// takeDirty returns the files that need a sync and whether the directory does.
func (f *files) takeDirty() (dirty []*file, named bool) {
	for _, v := range f.list {
		if v != nil && v.File != nil && v.dirty {
			v.dirty = false
			dirty = append(dirty, v)
		}
	}
	named, f.named = f.named, false
	return dirty, named
}
