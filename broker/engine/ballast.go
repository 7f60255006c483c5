package engine

import (
	"context"
	"log/slog"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/store"
)

// What makes room needs some itself: nothing may be deleted without a checkpoint, and a disk that is really full
// takes none. So the store keeps a ballast, whose space a step of retention gets when its checkpoint finds the disk
// full. From then on until there is a ballast again the log makes no further file: what the step gives back is for
// the ballast first.

// openBallast sees to the ballast before the log may take space for a file.
func (e *Engine) openBallast() {
	c := &e.spaces.costs
	if check := e.o.Store.Checkpoint(); check != nil {
		c.state.Store(sizeOf(check.Sections))
		c.saved.Store(int64(check.Pos))
	}
	if err := e.keepBallast(); store.IsFull(err) {
		e.log.Hold(true)
	}
}

func (e *Engine) keepBallast() error {
	return e.o.Store.KeepBallast(e.o.Store.BallastNeed(e.spaces.costs.files(e.log.Written())))
}

// holdSpace sees to the ballast and to whether the log may make files, and returns the state of the disk with that.
func (e *Engine) holdSpace(was *space.State, limits space.Limits, r space.Reading) space.State {
	e.spaces.holding.Lock()
	defer e.spaces.holding.Unlock()
	err := e.keepBallast()
	if store.IsFull(err) {
		r.Ballast = err
	} else if faulty := err != nil; faulty != e.spaces.faulty {
		if e.spaces.faulty = faulty; faulty {
			e.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "no space can be kept for what makes room on a full disk; look after the data directory", slog.String("error", err.Error()))
		}
	}
	next := was.Next(limits, r)
	e.log.Hold(next.Holds)
	return next
}

// lendBallast gives the space of the ballast to a checkpoint that found the disk full, and to the consume queues,
// without whose files there is none. False if there is no ballast.
func (e *Engine) lendBallast(ctx context.Context) bool {
	e.spaces.holding.Lock()
	defer e.spaces.holding.Unlock()
	if e.o.Store.Ballast() == 0 {
		return false
	}
	if e.log.Hold(true); !e.o.Store.LendBallast() {
		return false
	}
	e.o.Log.LogAttrs(ctx, slog.LevelWarn, "the disk is full: retention uses the space that is kept for its checkpoint, to delete what it may")
	_ = e.o.Store.Queues().Prepare() // an error comes again with the checkpoint
	return true
}

// wanted is how many bytes the disk lacks for the next file of the log and for the ballast.
func (e *Engine) wanted() int64 {
	s := e.Space()
	want := int64(0)
	if s.Seen.Stuck != nil {
		want += e.log.SegmentBytes()
	}
	if s.Seen.Ballast != nil {
		want += e.o.Store.BallastNeed(e.spaces.costs.files(e.log.Written()))
	}
	if want == 0 || s.Seen.Disk.Total == 0 {
		return want
	}
	return max(0, want-int64(min(s.Seen.Disk.Free, 1<<62)))
}

// Ballast is how many bytes of the disk are kept for what makes room, 0 if none are.
func (e *Engine) Ballast() int64 { return e.o.Store.Ballast() }
