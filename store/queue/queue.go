// Package queue is the consume queues: for every queue of every topic, where in the CommitLog the
// message with a given queue offset is, and what filters and order need to know of it.
//
// The entries of all queues live in one extent store: files of a fixed size, cut into extents of 4 KiB,
// each of which belongs to one queue and holds ExtentEntries consecutive entries of it. A hundred
// thousand small queues therefore cost neither a file nor a mapping each. In memory a queue is the list
// of its extent numbers, with the lowest message position in each, and a buffer with the entries that are not in
// an extent yet: 12 bytes for ExtentEntries entries.
//
// The queues are a view of the log. Their durable form is a pair: the extents, and the directory that
// Encode appends to a checkpoint. The directory says how many entries count; whatever else the extents
// hold is ignored, and replaying the log behind the checkpoint writes it again. An extent that was given
// up is not reused while one of the two newest checkpoints may name it, so that a crash at any moment
// finds what its checkpoint needs (docs/format/queue.md has the crash states).
//
// A Store has no goroutines. Append, Drop, DropQueue, DropBefore, Start, Encode, EncodeBounds, Decode and Reset are
// calls of the view's one owner; Read, At, Bounds, Seek, Late, Unreadable, Mend, Stats and Prepare may come from anywhere. A read of entries that are
// neither buffered nor cached does one small pread while it holds the lock that Append needs.
package queue

import (
	"cmp"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Section is the name of the section that holds the directory in a checkpoint.
const Section = "queues"

// Key names a queue.
type Key struct {
	Topic record.TopicID
	Queue record.QueueID
}

// Compare orders keys by topic, then by queue.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Topic, o.Topic), cmp.Compare(k.Queue, o.Queue))
}

// Options configures Open. The zero value of a field means its default.
type Options struct {
	// FS and Dir say where the extent files are. Dir is made if it is missing.
	FS  vfs.FS
	Dir string
	// FileBytes is the size of one extent file, a multiple of ExtentBytes, at least two extents and at
	// most 1 GiB. Default 16 MiB. A directory that has files keeps their size.
	FileBytes int64
	// CacheBytes bounds the extents kept for reading. Default 2 MiB, at least 8 extents.
	CacheBytes int
	// TailBytes bounds the buffers with the newest entries of the queues. Beyond it the oldest buffers
	// are written out. Default 64 MiB.
	TailBytes int
	// ReadOnly opens existing files for reading only: Append and Encode fail.
	ReadOnly bool
	// Log receives what an operator acts on. Default: discard.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.FileBytes = cmp.Or(o.FileBytes, 16<<20)
	o.CacheBytes = cmp.Or(o.CacheBytes, 2<<20)
	o.TailBytes = cmp.Or(o.TailBytes, 64<<20)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) validate() error {
	if o.FileBytes%ExtentBytes != 0 || o.FileBytes < 2*ExtentBytes || o.FileBytes > 1<<30 {
		return mqerr.New(mqerr.Invalid, "queue files of %d bytes: use a multiple of %d, at least two of them and at most 1 GiB", o.FileBytes, ExtentBytes)
	}
	return nil
}

// Store holds the entries of all queues.
//
// Invariants: min <= max for every queue, and exactly the offsets of [min, max) can be read; an extent
// belongs to at most one queue; an extent that a checkpoint of the last two names is never given to
// another queue.
type Store struct {
	o     Options
	watch atomic.Pointer[func(Damage)]

	// saving keeps Sync, Saved, Decode, Reset and Close apart. It is taken before mu.
	saving sync.Mutex

	mu        sync.RWMutex // guards everything below
	queues    map[Key]*queue
	order     []*queue // all queues; by key if sorted
	sorted    bool
	gone      int      // of order, removed by DropQueue
	warm      []*queue // queues with a buffer, longest buffered first
	tailBytes int      // capacity of all buffers
	files     *files
	cache     *cache
	encodes   uint64 // how often Encode succeeded
	failed    error  // a sync failed: no checkpoint may rely on these files any more
	scratch   [ExtentBytes]byte
}

// Open opens the extent files of a directory. The queues are empty until Decode.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	f, err := openFiles(o)
	if err != nil {
		return nil, err
	}
	return &Store{o: o, queues: map[Key]*queue{}, sorted: true, files: f, cache: newCache(o.CacheBytes)}, nil
}

// FileBytes is the size of one extent file.
func (s *Store) FileBytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return int64(s.files.perFile+1) * ExtentBytes
}

// Close closes the files. What was not encoded and synced is found again by a replay of the log.
func (s *Store) Close() error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files.close()
}

// Reset empties all queues and frees all extents, for a full rebuild from the log. No checkpoint may be
// on disk any more: it would name extents that get other contents.
func (s *Store) Reset() {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clearLocked()
	s.files.list, s.files.hint, s.files.retired, s.files.unwritten = s.files.blank(), 0, nil, nil
}

func (s *Store) clearLocked() {
	s.queues, s.order, s.sorted, s.gone = map[Key]*queue{}, nil, true, 0
	s.warm, s.tailBytes = nil, 0
	s.cache.clear()
}

// Bounds returns the first offset that can be read and the one that the next message gets; 0, 0 for a
// queue without messages.
func (s *Store) Bounds(k Key) (lo, hi record.QueueOffset) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if q := s.queues[k]; q != nil {
		return q.min, q.max
	}
	return 0, 0
}

// Keys returns the names of all queues, sorted.
func (s *Store) Keys() []Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sortLocked()
	keys := make([]Key, len(s.order))
	for i, q := range s.order {
		keys[i] = q.key
	}
	return keys
}

// Stats are sizes of a Store, for metrics and tests.
type Stats struct {
	Queues      int
	Extents     int   // in use by a queue
	Retired     int   // given up, not reusable yet
	Files       int   // extent files
	Unwritten   int   // extents of which something is in memory only, since their file could not take it
	TailBytes   int   // of memory, buffered entries
	CacheHits   int64 // extent look-ups that needed no read
	CacheMisses int64
}

// Stats returns the present sizes.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := Stats{Queues: len(s.queues), TailBytes: s.tailBytes}
	t.Extents, t.Retired, t.Files = s.files.count()
	t.Unwritten = len(s.files.unwritten)
	t.CacheHits, t.CacheMisses = s.cache.counts()
	return t
}
