package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"

	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// damages are the records that could not be read since the start: each is told of once, however often
// somebody meets it.
type damages struct {
	mu    sync.Mutex
	seen  map[record.Pos]struct{}
	files map[string]int64 // records by file
}

// damagesMax bounds what is remembered: beyond it damage is told of whenever it is met.
const damagesMax = 4096

// met notes a damaged record, and tells whether it is new.
func (d *damages) met(pos record.Pos, file string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, was := d.seen[pos]; was {
		return false
	}
	if d.seen == nil {
		d.seen, d.files = map[record.Pos]struct{}{}, map[string]int64{}
	}
	if len(d.seen) < damagesMax {
		d.seen[pos] = struct{}{}
		d.files[file]++
	}
	return true
}

// DamagedRecords is how many records of each file of the log could not be read since the start.
func (e *Engine) DamagedRecords() map[string]int64 {
	e.damages.mu.Lock()
	defer e.damages.mu.Unlock()
	return maps.Clone(e.damages.files)
}

// Holes are the parts of the log that are lost.
func (e *Engine) Holes() []commitlog.Hole { return e.log.Holes() }

// damaged reports a message that cannot be read. It is over if the group that came to it goes on without it.
func (e *Engine) damaged(l leased, err error, over bool) {
	if over {
		e.counts.DamagedDone.Add(1)
	}
	attrs, fresh := e.meet(l.pos, err)
	if !fresh {
		return
	}
	ctx := context.Background()
	attrs = append(attrs, slog.Int("queue", int(l.queue)), slog.Int64("queue_offset", int64(l.offset)))
	if over {
		e.o.Log.LogAttrs(ctx, slog.LevelError, "stored message is damaged: the consumer group goes on without it; check the disk and run perigee debug check", attrs...)
		return
	}
	e.o.Log.LogAttrs(ctx, slog.LevelError,
		"stored message is damaged and is not delivered; check the disk, then stop the broker and run perigee debug repair, which shows what is lost and ends it", attrs...)
}

// meet counts a record that cannot be read. It is fresh if nobody was told of it yet, with what to tell.
func (e *Engine) meet(pos record.Pos, err error) (attrs []slog.Attr, fresh bool) {
	e.counts.Damaged.Add(1)
	file, off := e.log.Place(pos)
	if !e.damages.met(pos, filepath.Base(file)) {
		return nil, false
	}
	return []slog.Attr{
		slog.String("file", file), slog.Int64("offset", off), slog.Int64("position", int64(pos)), slog.String("error", err.Error()),
	}, true
}

// past reports what a reader of the log has passed over, unless it is known.
func (e *Engine) past(p commitlog.Past) {
	if p.Known {
		return
	}
	if attrs, fresh := e.meet(p.From, errors.New(p.Why)); fresh {
		e.o.Log.LogAttrs(context.Background(), slog.LevelError, "the log is damaged: a reader goes on behind it; check the disk, then stop the broker and run perigee debug repair, which shows what is lost",
			append(attrs, slog.Int64("bytes", p.Bytes()))...)
	}
}
