package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// spaces is what the engine knows of the space on its disk. LookAtSpace changes the state, the writer
// reads it: what is refused in a turn is exact by the log's room and follows the disk by a second.
type spaces struct {
	now     atomic.Pointer[space.State]
	refused [space.Writers]atomic.Int64 // requests refused, or work put off, by who wanted to append
	unknown atomic.Bool                 // the file system does not tell how full it is
	limits  atomic.Pointer[space.Limits]
	costs   costs

	holding sync.Mutex // guards the ballast and whether the log makes files: they go together
	faulty  bool       // the ballast cannot be made, and not for lack of space; LookAtSpace's own
}

func (s *spaces) init(l space.Limits) {
	s.now.Store(&space.State{})
	s.limits.Store(&l)
}

// Space is the state of the disk as it was seen last.
func (e *Engine) Space() space.State { return *e.spaces.now.Load() }

// SpaceRefused is how many requests of a kind were refused for lack of space since the start; of what the
// broker does by itself, how often it was put off.
func (e *Engine) SpaceRefused(who space.Writer) int64 { return e.spaces.refused[who].Load() }

// LookAtSpace looks at the disk and the log and moves the level. Somebody at the edge calls it each second,
// and when a file could not be made; calls must not overlap.
func (e *Engine) LookAtSpace() space.State {
	r := space.Reading{Room: e.log.Room(), Stuck: e.log.Stuck(), Queues: e.o.Store.Queues().Prepare()}
	if u, err := e.o.Store.Usage(); err == nil {
		r.Disk = u
		e.spaces.unknown.Store(false)
	} else if !e.spaces.unknown.Swap(true) {
		e.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "it is not known how full the disk is, so its watermarks count for nothing until it is: check the file system of --data-dir", slog.String("error", err.Error()))
	}
	limits := e.o.Space.For(e.spaces.costs.log(int64(e.chunk())))
	e.spaces.limits.Store(&limits)
	was := e.spaces.now.Load()
	next := e.holdSpace(was, limits, r)
	e.spaces.now.Store(&next)
	if next.Level < was.Level || next.Seen.Stuck == nil && was.Seen.Stuck != nil {
		e.keeper.soon()
	}
	if next.Level != was.Level {
		e.reportSpace(was, &next)
	}
	return next
}

// reportSpace is the log line about a level that begins or ends.
func (e *Engine) reportSpace(was, now *space.State) {
	attrs := []slog.Attr{slog.String("level", now.Level.String()), slog.Int64("log_room", now.Seen.Room)}
	if u := now.Seen.Disk; u.Total > 0 {
		attrs = append(attrs, slog.Float64("used_percent", percent(u)), slog.Uint64("free", u.Free))
	}
	if err := errors.Join(now.Seen.Stuck, now.Seen.Queues, now.Seen.Ballast); err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	ctx, log := context.Background(), e.o.Log
	switch {
	case now.Level < was.Level:
		log.LogAttrs(ctx, slog.LevelInfo, "the disk has more space again: what this level does not name is taken", attrs...)
	case now.Level == space.Low:
		log.LogAttrs(ctx, slog.LevelWarn, "the disk gets full: make room on it, or keep messages for a shorter time, before messages are refused", attrs...)
	case now.Level == space.NoProducers:
		log.LogAttrs(ctx, slog.LevelWarn, "the disk is nearly full: messages are refused, consumers go on; make room on it, or keep messages for a shorter time", attrs...)
	default:
		log.LogAttrs(ctx, slog.LevelError, "the disk is full: messages and consumers are refused; make room on it, everything goes on by itself then", attrs...)
	}
}

// percent is the used part with one digit.
func percent(u vfs.Usage) float64 { return float64(int(u.UsedShare()*1000+0.5)) / 10 }

// hasSpace tells whether who may append need bytes: they surely fit into files that are there, and what is
// left behind them is enough for those who are refused later. It waits for a file that is being made, but
// not for a disk that has no room for it.
func (w *writer) hasSpace(who space.Writer, need int) bool {
	// A record that does not fit where a file ends leaves that rest unused, which is less than itself.
	return w.hasSpaceFor(who, need, need)
}

// hasSpaceFor is hasSpace for records that leave at most waste bytes unused where a file ends.
func (w *writer) hasSpaceFor(who space.Writer, need, waste int) bool {
	if !w.spaceFor(who, need+waste) {
		w.e.spaces.refused[who].Add(1)
		return false
	}
	return true
}

func (w *writer) spaceFor(who space.Writer, need int) bool {
	if w.e.spaces.now.Load().Level.Refuses(who) {
		return false
	}
	want := w.batch.End() + record.Pos(need+w.unwritten()) + record.Pos(w.e.spaces.limits.Load().Reserve(who))
	if want <= w.reach {
		return true
	}
	w.reach = w.e.log.Reach(want)
	return want <= w.reach
}

// unwritten is what the records of this turn take that are made at its end.
func (w *writer) unwritten() int {
	return ackBytes*len(w.acks.list) + offsetBytes*len(w.offsets.list) + endingBytes*len(w.txns.ending) + endsBytes
}

// endsBytes is what the heads of those records take.
const endsBytes = 1024

// noSpace is the answer to who was refused.
func (w *writer) noSpace(who space.Writer) error {
	s := w.e.spaces.now.Load()
	what, again := "nothing was stored", "messages are taken again by themselves then"
	if who != space.Producer {
		what, again = "nothing was changed", "requests are taken again by themselves then"
	}
	if mark := w.e.o.Space.Producers; who == space.Producer && s.Cause == space.DiskMark && s.Level.Refuses(who) {
		return mqerr.New(mqerr.DiskFull, "%s: the broker's disk is %v %% used and has %d MiB free, producers are refused from %v %% and below %d MiB on (--space-producers-used, --space-producers-free): make room on it or keep messages for a shorter time, %s",
			what, percent(s.Seen.Disk), s.Seen.Disk.Free>>20, mark.Used, mark.Free>>20, again)
	}
	if s.Cause == space.QueueFiles && s.Level.Refuses(who) {
		return mqerr.New(mqerr.DiskFull, "%s: the broker's disk does not take the files of its consume queues (%v): make room on it, or look after it, %s", what, s.Seen.Queues, again)
	}
	return mqerr.New(mqerr.DiskFull, "%s: the broker's disk is full, and what is left in its log is reserved (--space-consumers-room, --space-retention-room): make room on it, %s", what, again)
}
