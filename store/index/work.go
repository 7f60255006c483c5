package index

import (
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Reader calls fn with the records of the log from a record's position on until fn returns an error, which
// it returns. It passes over records that are damaged or lost, and calls past for each such part, in order.
type Reader func(from record.Pos, fn func(record.Record) error, past func() error) error

// Work does the next piece of work: writes the file of a run, or rebuilds one from the log, or removes files
// that no run has. It tells whether there is more. An error is of the disk or of read: try again after a
// pause. It is called by one goroutine at a time.
func (s *Store) Work(read Reader) (more bool, err error) {
	s.mu.RLock()
	r := s.nextLocked()
	s.mu.RUnlock()
	if r == nil {
		return false, s.clean()
	}
	var b []byte
	var part *span
	var holed bool
	switch {
	case s.has(r):
		s.took(r, &run{span: r.span, state: stored}, &s.counts.Adopted)
		return true, nil
	case r.state == pending:
		b = encodeFile(&r.span, slices.Clone(r.entries))
	default:
		if b, part, holed, err = s.rebuild(r, read); err != nil {
			return true, err
		}
		if b == nil {
			s.o.Log.Error("part of the index is lost and the log does not have its messages any more: a search does not find them; nothing has to be done", slog.Int64("from", int64(r.first)), slog.Int64("to", int64(r.last)))
			s.took(r, &run{span: r.span, state: lost}, nil)
			return true, nil
		}
	}
	if err := vfs.ReplaceFile(s.o.FS, s.path(fileName(r.first)), b); err != nil {
		s.mu.Lock()
		s.counts.Failures++
		s.mu.Unlock()
		return true, err
	}
	s.took(r, &run{span: r.span, state: stored, part: part, holed: holed}, &s.counts.Written)
	if r.state == missing {
		s.mu.Lock()
		s.counts.Rebuilt++
		s.mu.Unlock()
	}
	return true, nil
}

// nextLocked is the run to work on: the oldest pending one, else the newest missing one, which is the
// likeliest to be asked for.
func (s *Store) nextLocked() *run {
	if s.pending > 0 {
		for _, r := range s.runs {
			if r.state == pending {
				return r
			}
		}
	}
	for _, r := range slices.Backward(s.runs) {
		if r.state == missing {
			return r
		}
	}
	return nil
}

// has tells whether the file of a run was left by a former process.
func (s *Store) has(r *run) bool {
	name := fileName(r.first)
	s.mu.Lock()
	there := s.files[name]
	delete(s.files, name)
	s.mu.Unlock()
	if !there {
		return false
	}
	return r.whole(s.o.FS, s.path(name)) == nil
}

// whole checks every byte of a run's file.
func (s *span) whole(f vfs.FS, path string) error {
	b, err := vfs.ReadFile(f, path)
	if err != nil {
		return err
	}
	return s.check(b)
}

// took puts a run in the place of the one that was worked on and counts it. It may be gone by now.
func (s *Store) took(old, with *run, count *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaceLocked(old, with)
	if count != nil {
		*count++
	}
}

var errEnough = errors.New("enough")

// rebuild makes the file of a run from its part of the log, nil if the log has something else. Where the log has
// deleted the beginning of that part, or some of it is damaged, part says what the file has; holed tells of
// damage.
func (s *Store) rebuild(r *run, read Reader) (b []byte, part *span, holed bool, err error) {
	for {
		from := max(r.first, s.o.First())
		entries, got, holed, err := r.collect(from, read)
		switch {
		case mqerr.Is(err, mqerr.NotFound) && s.o.First() > from:
			continue // more was deleted meanwhile
		case mqerr.Is(err, mqerr.NotFound), mqerr.Is(err, mqerr.Corrupt): // no other try will read it
			return nil, nil, false, nil
		case err != nil:
			return nil, nil, false, err
		case got == r.span:
			return encodeFile(&got, entries), nil, false, nil
		case got.count == 0 || got.count > r.count || !holed && (from == r.first || got.last != r.last):
			return nil, nil, false, nil
		}
		return encodeFile(&got, entries), &got, holed, nil
	}
}

// collect reads the entries of a run from a position on.
func (s *span) collect(from record.Pos, read Reader) (entries []entry, got span, holed bool, err error) {
	entries = make([]entry, 0, s.count)
	var hashes []uint64
	err = read(from, func(r record.Record) error {
		if r.Pos > s.last || got.count > s.count {
			return errEnough
		}
		var err error
		if hashes, err = OfRecord(hashes[:0], &r); err != nil {
			return err
		}
		for _, h := range hashes {
			entries = append(entries, entry{h, r.Pos})
			got.add(h, r.Pos, r.Time)
		}
		return nil
	}, func() error { holed = true; return nil })
	if errors.Is(err, errEnough) {
		err = nil
	}
	return entries, got, holed, err
}

// clean removes the files that belong to no run.
func (s *Store) clean() error {
	s.mu.Lock()
	for _, r := range s.runs {
		delete(s.files, fileName(r.first))
	}
	gone := slices.Collect(maps.Keys(s.files))
	clear(s.files)
	s.mu.Unlock()
	for _, name := range gone {
		if err := s.o.FS.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Backlog is how many runs wait in memory for their file.
func (s *Store) Backlog() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pending
}
