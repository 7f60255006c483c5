package dedup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// The section of a checkpoint, in uvarints: version (1), lost until (ms), number of generations, and for
// each, oldest first: begin, time of the first entry, time of the last one, entries, CRC32C of them.
const version = 1

// write is entries for the file of a generation.
type write struct {
	begin record.Pos
	from  int64 // byte offset
	data  []byte
}

// Encode appends the state to dst, for a checkpoint: equal windows give equal bytes. The entries that no
// file has yet are handed over to Sync, which must have returned before the checkpoint is durable.
func (w *Window) Encode(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, version)
	dst = binary.AppendUvarint(dst, uint64(w.lostUntil))
	dst = binary.AppendUvarint(dst, uint64(len(w.gens)))
	w.mu.Lock()
	defer w.mu.Unlock()
	copy(w.named[1:], w.named[:])
	w.named[0] = nil
	for _, g := range w.gens {
		for _, v := range []uint64{uint64(g.begin), uint64(g.at), uint64(g.last), uint64(g.n), uint64(g.crc)} {
			dst = binary.AppendUvarint(dst, v)
		}
		w.named[0] = append(w.named[0], g.begin)
		if len(g.fresh) > 0 {
			w.pending = append(w.pending, write{begin: g.begin, from: g.n*entryBytes - int64(len(g.fresh)), data: g.fresh})
			g.fresh = nil
		}
	}
	return dst
}

// Decode replaces the window with the one of a section and the files that it names. A generation whose
// file is missing or not as it was is left out: the window is shorter then, until Fill. On an error, which the
// section alone can give, nothing has changed.
func (w *Window) Decode(b []byte) error {
	r := reader{b: b}
	if v := r.uvarint(); v != version && !r.bad {
		return mqerr.New(mqerr.Unsupported, "duplicate window of version %d, this release knows %d", v, version)
	}
	lost := int64(r.uvarint())
	n := r.uvarint()
	if n > generations {
		r.bad = true
	}
	var gens []*generation
	for range n {
		if r.bad {
			break
		}
		g := &generation{begin: record.Pos(r.uvarint()), at: int64(r.uvarint()), last: int64(r.uvarint()), n: int64(r.uvarint()), crc: uint32(r.uvarint())}
		if g.begin < 0 || g.at < 0 || g.last < g.at || g.n < 1 || g.n > 1<<40 || len(gens) > 0 && g.begin <= gens[len(gens)-1].begin {
			r.bad = true
		}
		gens = append(gens, g)
	}
	if r.bad || len(r.b) > 0 || lost < 0 {
		return mqerr.New(mqerr.Corrupt, "duplicate window that cannot be decoded")
	}
	w.clear()
	w.mu.Lock()
	for _, g := range gens {
		w.named[0] = append(w.named[0], g.begin)
	}
	w.mu.Unlock()
	if w.windowMS <= 0 {
		return nil
	}
	w.lost = lost
	for _, g := range gens {
		if err := w.load(g); err != nil {
			*g = g.empty()
			w.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "a file of the duplicate window cannot be used: what it has is looked for in the log",
				slog.String("file", w.path(g.begin)), slog.String("error", err.Error()))
		}
	}
	w.decoded = gens
	w.take()
	return nil
}

// load reads the entries of a generation.
func (w *Window) load(g *generation) error {
	f, err := w.o.FS.OpenRead(w.path(g.begin))
	if err != nil {
		return err
	}
	defer f.Close()
	if size, err := f.Size(); err != nil || size < g.n*entryBytes {
		return errors.Join(err, fmt.Errorf("it has %d bytes, expected %d", size, g.n*entryBytes))
	}
	all := make([]byte, g.n*entryBytes)
	if _, err := f.ReadAt(all, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if crc32.Checksum(all, castagnoli) != g.crc {
		return errors.New("its checksum is wrong")
	}
	if g.found = g.fill(all, max(w.partMax, partMin)); !g.found {
		return errors.New("it does not fit: it is damaged, or the memory of the window was made smaller")
	}
	return nil
}

// fill enters the entries of a file into the empty generation, part by part: a part fits the processor's
// cache, all of them do not. It is false if they do not fit.
func (g *generation) fill(all []byte, most int) bool {
	var ends [parts + 1]int // of the entries of each part in order; first how many there are
	for b := all; len(b) > 0; b = b[entryBytes:] {
		ends[binary.LittleEndian.Uint64(b)%parts+1]++
	}
	for i := range g.parts {
		g.parts[i].room(ends[i+1], most)
		ends[i+1] += ends[i]
	}
	type entry struct{ hash, pos uint64 }
	order := make([]entry, len(all)/entryBytes)
	for b := all; len(b) > 0; b = b[entryBytes:] {
		s := entry{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
		order[ends[s.hash%parts]] = s
		ends[s.hash%parts]++
	}
	for _, s := range order {
		if pos := record.Pos(s.pos); pos < g.begin || !g.put(s.hash, pos, most) {
			return false
		}
	}
	return true
}

// room makes an empty part as large as n entries make it.
func (p *part) room(n, most int) {
	size := partMin
	for size < most && n*4 > size*3 {
		size *= 2
	}
	if n > 0 {
		p.slots = make([]slot, size)
	}
}

// Sync writes what earlier calls of Encode handed over, and makes it durable.
func (w *Window) Sync() error {
	w.mu.Lock()
	pending := w.pending
	w.pending = nil
	w.mu.Unlock()
	for i, p := range pending {
		isNew, err := w.append(p)
		w.unnamed = w.unnamed || isNew
		if err != nil {
			w.mu.Lock()
			w.pending = append(pending[i:], w.pending...) // for the next time
			w.mu.Unlock()
			return fmt.Errorf("duplicate window %s: %w", w.path(p.begin), err)
		}
	}
	if !w.unnamed || len(pending) == 0 {
		return nil
	}
	if err := w.o.FS.SyncDir(w.o.Dir); err != nil {
		return err
	}
	w.unnamed = false
	return nil
}

func (w *Window) append(p write) (isNew bool, err error) {
	f, err := w.o.FS.Open(w.path(p.begin))
	if errors.Is(err, fs.ErrNotExist) {
		isNew = true
		f, err = w.o.FS.Create(w.path(p.begin))
	}
	if err != nil {
		return isNew, err
	}
	defer f.Close()
	if _, err := f.WriteAt(p.data, p.from); err != nil {
		return isNew, err
	}
	return isNew, f.Sync()
}

// Saved says that a checkpoint is durable: files that the last calls of Encode did not name are deleted.
func (w *Window) Saved() error {
	w.mu.Lock()
	keep := map[string]bool{}
	for _, names := range w.named {
		for _, begin := range names {
			keep[name(begin)] = true
		}
	}
	w.mu.Unlock()
	names, err := w.o.FS.List(w.o.Dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if !keep[n] {
			if err := w.o.FS.Remove(filepath.Join(w.o.Dir, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func name(begin record.Pos) string { return fmt.Sprintf("%020d", int64(begin)) }

func (w *Window) path(begin record.Pos) string { return filepath.Join(w.o.Dir, name(begin)) }

// reader reads uvarints from the front of b.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return v
}
