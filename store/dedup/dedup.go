// Package dedup is the duplicate window: where the log has messages that were stored lately, by a hash of
// topic and message id, so that a message which is sent again is found.
//
// It is a view of the log. Entries (hash and position) lie in generations of a third of the
// window each; the oldest goes when the window has moved past it, or sooner when the memory is used up:
// then the window is shorter for a while, and InForce says so. A generation is a table that is cut by
// hash into small parts, so that no step takes long. In a table an entry has 8 bytes (slot.go), and a table is
// three quarters full at most: 11 to 22 bytes for a message.
//
// A hash that is found proves nothing: the caller compares with the record. So what is lost here, a file
// for example, costs a part of the window and is no error.
//
// Checkpoints name generations and their lengths; their entries are appended to files, one for each
// generation (docs/format/dedup.md).
package dedup

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Options configures a Window. The zero value of a field means its default.
type Options struct {
	FS  vfs.FS
	Dir string // of the files; it must exist
	// Window is how long messages are remembered. Default 10 minutes, below 0: not at all.
	Window time.Duration
	// Bytes is the most memory that the tables take. Default 64 MiB, at least 64 KiB.
	Bytes int64
	Log   *slog.Logger
}

// Shape of the tables.
const (
	generations = 4 // three make a window
	parts       = 64
	entryBytes  = 16 // of an entry in a file: hash and position
	partMin     = 16 // slots

	// sameMax is how many messages with one id and different bodies a generation remembers.
	sameMax = 8

	// keptNames is how many calls of Encode keep their files: those of the two checkpoints that are kept, and one
	// that may be under way.
	keptNames = 3
)

// Window is the duplicate window of one broker. Its methods belong to the owner of the views, but for
// Sync and Saved, which may run beside them, one at a time.
type Window struct {
	o        Options
	windowMS int64 // the longest that anybody asks for
	partMax  int   // slots

	gens      []*generation // the newest last
	lostUntil int64         // what was stored before may be missing, ms; 0: nothing is
	decoded   []*generation // of the last Decode, those without entries included
	lost      int64         // lostUntil as of the last Decode, if all of them had entries

	// unnamed: the directory may have names that are not durable, also those of a process that was killed. Sync
	// has it.
	unnamed bool

	mu      sync.Mutex              // guards what Sync takes over
	pending []write                 // entries that no file has
	named   [keptNames][]record.Pos // generations of the last calls of Encode, the last one first
}

// generation is the entries of a stretch of the log.
type generation struct {
	begin record.Pos // of its first entry; names its file
	at    int64      // store time of that one, ms
	last  int64      // store time of the last one
	n     int64      // entries, those included that were replaced by later ones of the same hash
	crc   uint32     // of all entries, CRC32C
	fresh []byte     // entries that no Encode has handed over
	found bool       // entries of a decoded one are there
	parts [parts]part
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// New returns an empty window.
func New(o Options) *Window {
	if o.Window == 0 {
		o.Window = 10 * time.Minute
	}
	if o.Bytes == 0 {
		o.Bytes = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	most := max(partMin, o.Bytes/generations/parts/slotBytes)
	return &Window{o: o, unnamed: true, windowMS: o.Window.Milliseconds(), partMax: 1 << (bits.Len64(uint64(most)) - 1)}
}

// Own is the window of Options, 0 if duplicates are not looked for.
func (w *Window) Own() time.Duration { return max(0, w.o.Window) }

// Cover makes the window at least so long from a time in ms on; 0 goes back to that of Options. What was stored
// before and is forgotten stays so: InForce tells.
func (w *Window) Cover(window time.Duration, at int64) {
	was := w.windowMS
	w.windowMS = max(w.o.Window, window).Milliseconds()
	if was <= 0 && w.windowMS > 0 {
		w.lostUntil = max(w.lostUntil, at)
	}
}

// Reset empties the window, as before the first record.
func (w *Window) Reset() {
	w.windowMS = w.o.Window.Milliseconds()
	w.clear()
}

func (w *Window) clear() {
	w.gens, w.lostUntil, w.decoded = nil, 0, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = nil
}

// Add notes the message at pos, stored at a time in ms. Positions rise, and times do not fall.
func (w *Window) Add(hash uint64, pos record.Pos, at int64) {
	if w.windowMS <= 0 {
		return
	}
	g := w.current()
	if g == nil || at-g.at >= w.windowMS/(generations-1) || !g.put(hash, pos, w.partMax) {
		g = &generation{begin: pos, at: at}
		w.gens = append(w.gens, g)
		g.put(hash, pos, w.partMax)
	}
	g.note(hash, pos, at)
	for len(w.gens) > generations || len(w.gens) > 1 && w.gens[1].at <= at-w.windowMS {
		w.lostUntil = max(w.lostUntil, w.gens[1].at)
		w.gens[0] = nil
		w.gens = w.gens[1:]
	}
}

// LostBefore says that the log is about to delete what lies before first; the message there was stored at a time in
// ms. Where the window reaches back further, it is in force from then on only. Entries stay: some of the messages
// are carried forward, and are found by the position that they had.
func (w *Window) LostBefore(first record.Pos, at int64) {
	if len(w.gens) > 0 && w.gens[0].begin < first {
		w.lostUntil = max(w.lostUntil, at)
	}
}

func (w *Window) current() *generation {
	if len(w.gens) == 0 {
		return nil
	}
	return w.gens[len(w.gens)-1]
}

// note appends an entry to what the file of the generation gets.
func (g *generation) note(hash uint64, pos record.Pos, at int64) {
	n := len(g.fresh)
	g.fresh = binary.LittleEndian.AppendUint64(g.fresh, hash)
	g.fresh = binary.LittleEndian.AppendUint64(g.fresh, uint64(pos))
	g.crc = crc32.Update(g.crc, castagnoli, g.fresh[n:])
	g.n++
	g.last = at
}

// Find appends the positions of messages that may be the one with this hash, the newest first: at most
// 8 of each of 4 generations.
func (w *Window) Find(hash uint64, dst []record.Pos) []record.Pos {
	from := len(dst)
	for _, g := range w.gens {
		dst = g.parts[hash%parts].find(tagOf(hash), g.begin, dst)
	}
	slices.SortFunc(dst[from:], func(a, b record.Pos) int { return cmp.Compare(b, a) })
	return dst
}

// Window is how far back messages count, 0 if duplicates are not looked for.
func (w *Window) Window() time.Duration { return max(0, time.Duration(w.windowMS)*time.Millisecond) }

// InForce is how far back from a time in ms the window reaches really.
func (w *Window) InForce(now int64) time.Duration {
	if w.lostUntil == 0 || w.windowMS <= 0 {
		return w.Window()
	}
	return time.Duration(max(0, min(w.windowMS, now-w.lostUntil))) * time.Millisecond
}

// Len is the number of entries.
func (w *Window) Len() int64 {
	n := int64(0)
	for _, g := range w.gens {
		n += g.n
	}
	return n
}

// Bytes is the memory of the tables.
func (w *Window) Bytes() int64 {
	n := int64(0)
	for _, g := range w.gens {
		for i := range g.parts {
			n += int64(len(g.parts[i].slots)) * slotBytes
		}
	}
	return n
}
