package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// A step of retention has what it cannot read of a consume queue mended. Where that is not possible either, since the
// log is damaged in the same place, it goes on without: the log must not grow for ever.

// firstOver is firstOf for a queue of which a part can be neither read nor mended: the log tells what got its place
// in the part of it that stays. Without an entry that is found there, everything goes that the queue has by now.
func (s *step) firstOver(ctx context.Context, key queue.Key, d *queue.Damage) (record.QueueOffset, error) {
	s.e.o.Log.LogAttrs(ctx, slog.LevelError, "retention cannot read a part of a consume queue, and goes on without it; check the disk, and run perigee debug repair",
		slog.Int("topic_id", int(key.Topic)), slog.Int("queue", int(key.Queue)), slog.String("error", d.Error()))
	_, first := s.e.views.queues.Bounds(key)
	f := filling{v: &s.e.views, lost: func() {}, wants: func(k queue.Key, _ record.QueueOffset) bool { return k == key }}
	f.put = func(_ queue.Key, off record.QueueOffset, _ queue.Entry) error {
		first = min(first, off)
		return errEnd
	}
	began := time.Now()
	_, _, err := s.e.log.ScanPast(s.plan.D, func(r record.Record) error {
		if err := s.e.pace(ctx, began, int64(r.Pos-s.plan.D)); err != nil {
			return err
		}
		if err := f.take(&r); err != nil && !mqerr.Is(err, mqerr.Corrupt) {
			return err
		}
		return nil
	}, func(p commitlog.Past) error { s.e.past(p); return nil })
	if errors.Is(err, errEnd) {
		err = nil
	}
	return first, err
}

// toMend is the first damage that was not tried to be mended, nil if there is none.
func (s *step) toMend(unknown []unknownBegin) error {
	for i := range unknown {
		if !s.given[unknown[i].Key] {
			return unknown[i].Damage
		}
	}
	return nil
}

// mendOrGive has a queue mended. What cannot be, or is damaged again in the same place, is gone on without.
func (s *step) mendOrGive(ctx context.Context, d *queue.Damage) {
	if s.given == nil {
		s.given = map[queue.Key]bool{}
	}
	last := s.met
	s.met = *d
	s.given[d.Key] = s.given[d.Key] || s.e.mender.mend(ctx, *d) != nil || last.Key == d.Key && last.First == d.First
}

// unbegun reports a group that may lose messages, since where it begins cannot be read.
func (e *Engine) unbegun(u *unknownBegin) {
	e.counts.Damaged.Add(1)
	e.o.Log.LogAttrs(context.Background(), slog.LevelError, "a consume queue that begins later cannot be read where it says what a consumer group has yet to read: what the group loses is not counted; check the disk",
		slog.Int("group_id", int(u.Group)), slog.Int("topic_id", int(u.Topic)), slog.Int("queue", int(u.Key.Queue)), slog.String("error", u.Damage.Error()))
}

// unheld lets a leased message go whose entry cannot be read.
func (s *step) unheld(it *record.TrimQueue, off record.QueueOffset, err error) {
	s.k.note(func(t *Retention) { t.Damaged++ })
	s.e.counts.Damaged.Add(1)
	s.e.o.Log.LogAttrs(context.Background(), slog.LevelError, "the place of a message cannot be read: retention could not hold it and goes on without it; check the disk",
		slog.Int("topic_id", int(it.Topic)), slog.Int("queue", int(it.Queue)), slog.Int64("queue_offset", int64(off)), slog.String("error", err.Error()))
}

// eachLate calls fn with the late entries of a queue, as Late does, but for what can be neither read nor mended.
func (s *step) eachLate(ctx context.Context, key queue.Key, lo, hi record.QueueOffset, fn func(record.QueueOffset, queue.Entry) error) error {
	for {
		err := s.e.mending(ctx, func() error {
			return s.e.views.queues.Late(key, lo, hi, s.plan.D, func(off record.QueueOffset, e queue.Entry) error {
				lo = off + 1
				return fn(off, e)
			})
		})
		d, damaged := queue.DamageOf(err)
		if !damaged || ctx.Err() != nil {
			return err
		}
		lo = max(lo, d.First+queue.ExtentEntries)
	}
}
