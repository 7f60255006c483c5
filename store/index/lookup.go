package index

import (
	"errors"
	"io/fs"
	"log/slog"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Gap is a range of store times, ms since 1970, both included, of which the index does not know all.
type Gap struct {
	FromMS, ToMS int64
	Lost         bool // it never will: the log does not have it any more, or it is damaged there
}

// Lookup calls fn with the positions of the messages that may have what hash is of, until fn wants no more:
// the newest ones first, in portions, each of which rises. Positions that the log has deleted are left out. Runs without a message in [fromMS, toMS) are left
// out, with 0 for no bound; those that are looked at may have others. It returns what could not be looked at.
// It costs a pass over the buffer and two reads for each run.
func (s *Store) Lookup(hash uint64, fromMS, toMS int64, fn func([]record.Pos) (more bool, err error)) ([]Gap, error) {
	s.mu.RLock()
	runs, buffer, open := s.runs, s.buffer, s.open
	s.mu.RUnlock()
	first := s.o.First()
	within := func(p *span) bool { return p.count > 0 && p.max >= fromMS && (toMS == 0 || p.min < toMS) }
	if within(&open) {
		if more, err := give(fn, first, scan(buffer, hash)); err != nil || !more {
			return nil, err
		}
	}
	var gaps []Gap
	for _, r := range slices.Backward(runs) {
		if !within(&r.span) {
			continue
		}
		found, err := s.inRun(r, hash)
		if err != nil {
			return nil, err
		}
		if found == nil || r.holed {
			gaps = append(gaps, Gap{FromMS: r.min, ToMS: r.max, Lost: found != nil || r.state == lost})
		}
		if found == nil {
			continue
		}
		if more, err := give(fn, first, found); err != nil || !more {
			return gaps, err
		}
	}
	return gaps, nil
}

func give(fn func([]record.Pos) (bool, error), first record.Pos, found []record.Pos) (bool, error) {
	for len(found) > 0 && found[0] < first {
		found = found[1:]
	}
	if len(found) == 0 {
		return true, nil
	}
	return fn(found)
}

// inRun returns the positions in one run, nil if the run cannot be read now.
func (s *Store) inRun(r *run, hash uint64) ([]record.Pos, error) {
	switch r.state {
	case pending:
		return scan(r.entries, hash), nil
	case missing, lost:
		return nil, nil
	}
	found, err := r.inFile().readFile(s.o.FS, s.path(fileName(r.first)), hash)
	switch {
	case errors.Is(err, fs.ErrNotExist), mqerr.Is(err, mqerr.Corrupt):
		s.damaged(r, err)
		return nil, nil
	case err != nil:
		return nil, err
	case found == nil:
		return []record.Pos{}, nil
	}
	return found, nil
}

// scan returns the positions of a hash among entries in log order, never nil.
func scan(entries []entry, hash uint64) []record.Pos {
	found := []record.Pos{}
	for i := range entries {
		if entries[i].hash == hash {
			found = appendNew(found, entries[i].pos)
		}
	}
	return found
}

// damaged notes that the file of a run is of no use: it is rebuilt from the log.
func (s *Store) damaged(r *run, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replaceLocked(r, &run{span: r.span, state: missing}) {
		s.counts.Damaged++
		s.o.Log.Warn("index file cannot be used and is rebuilt from the log, until then a search may be incomplete; check the disk", slog.String("error", err.Error()))
		s.ring()
	}
}

// replaceLocked puts another run in the place of one, and tells whether that one was still there.
func (s *Store) replaceLocked(old, with *run) bool {
	for i, r := range s.runs {
		if r == old {
			runs := make([]*run, len(s.runs))
			copy(runs, s.runs)
			runs[i] = with
			s.runs = runs
			if old.state == pending {
				s.pending--
			}
			return true
		}
	}
	return false
}
