package queue

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// A file that cannot be made or written does not stop the queues: they are a view of the log, which has
// everything. What the file could not take stays in memory and is read from there, and no checkpoint is
// encoded until it is written.

// patch is a part of an extent, off bytes behind its start.
type patch struct {
	off  int
	data []byte
}

// write writes into an extent, off bytes behind its start.
func (f *files) write(x uint32, off int, b []byte) {
	n, at := f.where(x)
	v := f.list[n]
	if v.File != nil && len(f.unwritten[x]) == 0 {
		v.dirty = true
		_, err := v.WriteAt(b, at+int64(off))
		if err == nil {
			return
		}
		f.stuck = fmt.Errorf("queue file: %w", err)
	}
	if f.unwritten == nil {
		f.unwritten = map[uint32][]patch{}
	}
	f.unwritten[x] = append(f.unwritten[x], patch{off, slices.Clone(b)})
}

// readAll fills data with the first bytes of an extent, as its file and what is unwritten say.
func (f *files) readAll(x uint32, data []byte) error {
	n, at := f.where(x)
	parts := f.unwritten[x]
	clear(data)
	if v := f.list[n]; v.File != nil && (len(parts) == 0 || parts[0].off > 0 || len(parts[0].data) < len(data)) {
		_, err := v.ReadAt(data, at)
		if errors.Is(err, io.EOF) {
			return mqerr.New(mqerr.Corrupt, "the file is cut short: %w", err)
		}
		if err != nil {
			return err
		}
	}
	for _, p := range parts {
		if p.off < len(data) {
			copy(data[p.off:], p.data)
		}
	}
	return nil
}

// settle makes the files that could not be made, and writes what is not. After an error the rest
// stays unwritten.
func (f *files) settle() error {
	if f.stuck == nil {
		return nil
	}
	for n, v := range f.list {
		if v == nil || v.File != nil {
			continue
		}
		made, err := f.create(n)
		if err != nil {
			f.stuck = err
			return err
		}
		v.File, v.dirty = made, true
	}
	for x, parts := range f.unwritten {
		n, at := f.where(x)
		for _, p := range parts {
			f.list[n].dirty = true
			if _, err := f.list[n].WriteAt(p.data, at+int64(p.off)); err != nil {
				f.stuck = fmt.Errorf("queue file: %w", err)
				return f.stuck
			}
		}
		delete(f.unwritten, x)
	}
	f.stuck = nil
	return nil
}

// reserve is how many free extents there should be.
func (f *files) reserve() int { return int(f.perFile / 2) }

// free is how many extents can be given out.
func (f *files) free() (n int) {
	for _, v := range f.list {
		if v != nil {
			n += int(v.free)
		}
	}
	return n
}

// Prepare makes the next extent file before it is needed, and writes what files could not take. Somebody
// calls it each second. An error says that the queues cannot grow, or are not on the disk, now: messages
// should be refused until it is over. What is appended meanwhile stays in memory.
func (s *Store) Prepare() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files
	if f.readOnly || f.closed {
		return nil
	}
	f.ahead = true
	if err := f.settle(); err != nil {
		return err
	}
	if f.free() >= f.reserve() {
		return nil
	}
	n := f.hole()
	v, err := f.create(n)
	if err != nil {
		return err
	}
	f.put(n, v)
	f.list[n].dirty = true
	return nil
}
