package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// A standby is an engine that does not write: another replica leads, and what it has written is appended to
// the log by somebody else. Its recovery ends where the views were saved, which is confirmed; from there on they
// follow the confirm offset. So they never know of a record that may be cut, and are as good as those of the
// master when it is gone.
//
// Apply, and Start, are for one goroutine; no record may be cut below Applied.

// standby is where the views of a standby are.
type standby struct {
	log  *commitlog.ChunkReader
	at   record.Pos     // everything below is in the views
	last commitlog.Last // the record there; Pos is -1 if nothing was applied since the start
	busy chan struct{}  // holds a token while a checkpoint is being saved
	// saved is the position of the newest checkpoint, or of what the start began with; when the time of the lease
	// clock when it was begun, ms.
	saved record.Pos
	when  int64
	// drop is where the log may begin, and behind the end of the SNAPSHOT that says so.
	drop, behind record.Pos
}

// Applied is the position below which a standby has taken everything into its views.
func (e *Engine) Applied() record.Pos { return record.Pos(e.applied.Load()) }

// Apply takes the records of the log up to a position, the end of a record at or below the confirm offset and
// Written, into the views, and saves them now and then. An error of kind Corrupt says that the log is damaged:
// this replica is of no use before it has it anew.
func (e *Engine) Apply(to record.Pos) error {
	s := &e.standby
	if to <= s.at {
		return nil
	}
	if err := e.views.follow(s, to); err != nil {
		return err
	}
	e.applied.Store(int64(s.at))
	e.saveStandby(false)
	return nil
}

// applyBytes is how much of the log a standby takes at once, a batch that is larger apart.
const applyBytes = 256 << 10

// follow applies the records from where a standby is up to a position.
func (v *views) follow(s *standby, to record.Pos) error {
	for s.log.Pos() < to {
		c, err := s.log.Next(to, applyBytes)
		if err != nil {
			return err
		}
		err = c.Each(func(r record.Record) error {
			if r.Type == record.TypePad {
				return nil
			}
			v.index.settle()
			if err := v.apply(r); err != nil {
				return err
			}
			s.at, s.last = r.End(), commitlog.Last{Pos: r.Pos, Epoch: r.Epoch, CRC: r.CRC}
			return s.look(&r, v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// look notes where the log may begin: what retention has let go is in a SNAPSHOT that is complete.
func (s *standby) look(r *record.Record, v *views) error {
	if r.Type != record.TypeSnapshot {
		return nil
	}
	c, err := record.DecodeSnapshot(r.Body)
	if err == nil && c.Last {
		s.drop, s.behind = v.carried.Begin(), r.End()
	}
	return err
}

// saveStandby saves the views beside everything else, after the usual time or amount of log, or at once.
func (e *Engine) saveStandby(now bool) {
	s := &e.standby
	lease := e.clock.Lease()
	due := now || int64(s.at-s.saved) >= e.o.CheckpointBytes || lease-s.when >= e.o.CheckpointInterval.Milliseconds()
	if !due || s.at == s.saved || s.last.Pos < 0 {
		return
	}
	select {
	case s.busy <- struct{}{}:
	default:
		return // one is being saved
	}
	at, drop := commitlog.Tail{End: s.at, Last: s.last}, record.Pos(0)
	if s.at >= s.behind {
		drop = s.drop
	}
	sections, err := e.views.encode()
	s.saved, s.when = s.at, lease
	began := time.Now()
	e.saves.Go(func() {
		defer func() { <-s.busy }()
		if err == nil {
			err = e.o.Store.SaveCheckpoint(at, sections)
		}
		if err == nil && drop > e.log.First() {
			_, err = e.o.Store.DropBefore(drop)
		}
		if err != nil {
			e.counts.CheckpointFailures.Add(1)
			e.o.Log.LogAttrs(context.Background(), slog.LevelError, "checkpoint of a standby failed: its next start takes longer until one succeeds; check the disk", slog.String("error", err.Error()))
			return
		}
		e.counts.Checkpoints.Add(1)
		if f := e.o.Events.Checkpointed; f != nil {
			f(at.End, time.Since(began))
		}
	})
}

// lead makes a standby one that may write: it takes the rest of the log.
func (e *Engine) lead() error {
	s := &e.standby
	if err := e.Apply(e.log.Written()); err != nil {
		return err
	}
	if err := e.views.close(e.o); err != nil {
		return err
	}
	if err := e.views.checkBegin(e.o); err != nil {
		return err
	}
	e.saves.Wait() // from here on the writer saves
	e.views.saved = s.saved
	return nil
}

// endStandby ends a standby: the views are saved.
func (e *Engine) endStandby() record.Pos {
	e.saves.Wait()
	e.saveStandby(true)
	e.saves.Wait()
	return e.standby.at
}
