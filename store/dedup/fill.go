package dedup

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"log/slog"

	"github.com/perigee-mq/perigee/store/record"
)

// take makes the generations of a section that have their entries the window. What one of the others had is
// lost, up to where the next one begins.
func (w *Window) take() {
	w.gens, w.lostUntil = nil, w.lost
	for i, g := range w.decoded {
		if g.found {
			w.gens = append(w.gens, g)
			continue
		}
		until := g.last + 1
		if i+1 < len(w.decoded) {
			until = w.decoded[i+1].at
		}
		w.lostUntil = max(w.lostUntil, until)
	}
	if len(w.gens) == len(w.decoded) {
		w.decoded = nil // nothing is left for Fill
	}
}

// Fill looks in the log for the entries whose files Decode could not use; call it right after Decode. read calls
// fn with the messages from a position on that Add was called with, in order, until fn wants no more. What it
// does not find, since the log has deleted it or says something else now, stays lost.
func (w *Window) Fill(read func(from record.Pos, fn func(hash uint64, pos record.Pos, at int64) (more bool)) error) {
	if w.decoded == nil {
		return
	}
	for _, g := range w.decoded {
		if g.found {
			continue
		}
		var all []byte
		err := read(g.begin, func(hash uint64, pos record.Pos, _ int64) bool {
			if int64(len(all)) < g.n*entryBytes {
				all = binary.LittleEndian.AppendUint64(all, hash)
				all = binary.LittleEndian.AppendUint64(all, uint64(pos))
			}
			return int64(len(all)) < g.n*entryBytes
		})
		if err == nil && int64(len(all)) == g.n*entryBytes && crc32.Checksum(all, castagnoli) == g.crc && g.fill(all, max(w.partMax, partMin)) {
			g.found, g.fresh = true, all
			continue
		}
		*g = g.empty()
		attrs := []slog.Attr{slog.Int64("position", int64(g.begin))}
		if err != nil {
			attrs = append(attrs, slog.String("error", err.Error()))
		}
		w.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "a part of the duplicate window is lost: messages sent again from that time are stored again", attrs...)
	}
	w.take()
	w.decoded = nil
}

// empty is the generation without entries.
func (g *generation) empty() generation {
	return generation{begin: g.begin, at: g.at, last: g.last, n: g.n, crc: g.crc}
}
