// Package index finds messages by key and by message id: it maps a hash of topic, kind and text to the
// positions in the CommitLog of the messages that have it. A hash may be shared, so whoever looks up
// compares with the record.
//
// The newest entries are in a buffer in memory, in log order. When it holds Options.RunEntries it becomes
// a run: a file with the same entries, sorted by hash, that never changes again. Which entries make a run
// depends on the log alone, so the list of runs does, too; a checkpoint holds that list and the buffer, and
// no file of a run. A run whose file is not there, was damaged, or holds something else than the list says
// (the log's tail was lost and written anew) is rebuilt from its part of the log, and until then a look-up
// says which times it does not know. If the log has lost the beginning of that part to retention, the file has
// what is left: nobody can read the rest. docs/format/index.md draws both.
//
// A Store has no goroutines. Add, DropBefore, Encode, Decode and Reset are calls of the view's one owner
// and never wait for a disk; Lookup and Stats may come from anywhere; Work, which does, is called by one
// other goroutine.
package index

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Section is the name of the section of a checkpoint.
const Section = "index"

// Options configures Open. The zero value of a field means its default.
type Options struct {
	// FS and Dir say where the files are. Dir is made if it is missing.
	FS  vfs.FS
	Dir string
	// RunEntries is how many entries make a run; a message's entries are never divided. Default 65,536,
	// of which each takes 16 bytes of memory. Stores of one log must agree on it.
	RunEntries int
	// Pending bounds the runs that wait in memory for their file. What is beyond is taken from the log
	// again. Default 4.
	Pending int
	// First is where the log begins by now. Default: at 0.
	First func() record.Pos
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

// entry says that the message at pos has something with this hash.
type entry struct {
	hash uint64
	pos  record.Pos
}

// Store is the index of one log.
//
// Invariants: runs do not overlap and rise by position, and the buffer is behind them; a published run
// never changes, another one takes its place.
type Store struct {
	o    Options
	bell chan struct{}

	mu      sync.RWMutex    // guards what follows
	runs    []*run          // the slice never changes, another one takes its place
	buffer  []entry         // by position; existing entries never change
	open    span            // of the buffer
	pending int             // runs without a file whose entries are in memory
	files   map[string]bool // that may be there and be of no use: found at Open, or of a run that was dropped
	counts  Stats
}

// Open lists the files of a directory and reads none.
func Open(o Options) (*Store, error) {
	if o.RunEntries == 0 {
		o.RunEntries = 1 << 16
	}
	if o.Pending == 0 {
		o.Pending = 4
	}
	if o.First == nil {
		o.First = func() record.Pos { return 0 }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.RunEntries < 1 || o.RunEntries > runEntriesMax || o.Pending < 1 {
		return nil, mqerr.New(mqerr.Invalid, "runs of %d entries, %d pending: take 1 to %d, and at least 1", o.RunEntries, o.Pending, runEntriesMax)
	}
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, err
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, bell: make(chan struct{}, 1), files: map[string]bool{}}
	for _, name := range names {
		if strings.HasSuffix(strings.TrimSuffix(name, vfs.TempSuffix), fileSuffix) {
			s.files[name] = true
		}
	}
	return s, nil
}

// Add notes what a message has. Positions rise from call to call, times do not fall.
func (s *Store) Add(pos record.Pos, at int64, hashes []uint64) {
	if len(hashes) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.buffer) > 0 && (len(s.buffer)+len(hashes) > s.o.RunEntries || pos-s.open.first > spanMax) {
		s.sealLocked()
	}
	if s.buffer == nil {
		s.buffer = make([]entry, 0, max(s.o.RunEntries, len(hashes)))
	}
	for _, h := range hashes {
		s.buffer = append(s.buffer, entry{h, pos})
		s.open.add(h, pos, at)
	}
}

// sealLocked makes the buffer a run.
func (s *Store) sealLocked() {
	runs := append(slices.Clip(s.runs), &run{span: s.open, state: pending, entries: s.buffer})
	if s.pending++; s.pending > s.o.Pending {
		for i, r := range runs {
			if r.state == pending {
				runs[i] = &run{span: r.span, state: missing}
				s.pending--
				s.counts.Dropped++
				break
			}
		}
	}
	s.runs, s.buffer, s.open = runs, nil, span{}
	s.ring()
}

func (s *Store) ring() {
	select {
	case s.bell <- struct{}{}:
	default:
	}
}

// Waiting is a channel that holds a token when there is something for Work to do.
func (s *Store) Waiting() <-chan struct{} { return s.bell }

// Reset empties the index, for a rebuild from the log. Files stay: those that hold what the rebuild finds
// are used again.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs, s.buffer, s.open, s.pending = nil, nil, span{}, 0
}

// DropBefore forgets the runs that lie before first as a whole: the log does not hold their messages any
// more.
func (s *Store) DropBefore(first record.Pos) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for n < len(s.runs) && s.runs[n].last < first {
		if s.runs[n].state == pending {
			s.pending--
		}
		s.files[fileName(s.runs[n].first)] = true
		n++
	}
	if n > 0 {
		s.runs = s.runs[n:]
		s.ring()
	}
}

// Stats are sizes and counts of a Store, for metrics and tests.
type Stats struct {
	Entries  int64 // in the index
	Runs     int
	Missing  int   // runs without a file and without their entries in memory
	Pending  int   // runs that wait in memory for their file
	Bytes    int64 // of the runs' files
	Written  int64 // files written since Open
	Rebuilt  int64 // of them, from the log, because they were not there or damaged
	Damaged  int64 // files found damaged or holding something else
	Partial  int   // runs whose file has only what the log had when it was rebuilt
	Dropped  int64 // runs given up in memory because too many waited
	Adopted  int64 // files of a former process found good and used again
	Failures int64 // files that could not be written
}

// Stats returns the present sizes.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.counts
	t.Runs, t.Pending, t.Entries = len(s.runs), s.pending, int64(len(s.buffer))
	for _, r := range s.runs {
		t.Entries += int64(r.inFile().count)
		switch r.state {
		case missing, lost:
			t.Missing++
		case stored:
			t.Bytes += fileSize(int(r.inFile().count))
		}
		if r.part != nil {
			t.Partial++
		}
	}
	return t
}

func (s *Store) path(name string) string { return filepath.Join(s.o.Dir, name) }
