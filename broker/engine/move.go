package engine

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/broker/timer"
	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Bounds of carrying.
const (
	movePortion = 256 << 10 // bytes of messages that the writer takes in one turn, one message may exceed it
	lateLook    = 4096      // late entries that one turn judges
)

// need says of messages by the positions at which they were written first how they are needed: for sure, or
// only if they were committed, since everybody has done them. A queue is rebuilt from the records that gave
// places, and that of a commit does not say what the message's own record does.
type need map[record.Pos]bool

const (
	needed      = true
	ifCommitted = false
)

func (n need) add(pos record.Pos, how bool) { n[pos] = n[pos] || how }

// carry writes the messages anew that stand in the part of the log that goes and are referred to: those that
// wait for their time or for a verdict, those that are held, and those that got their place late, in the part
// that stays.
func (s *step) carry(ctx context.Context) error {
	v, d, want := &s.e.views, s.plan.D, need{}
	add := func(pos record.Pos, how bool) {
		if v.carried.Present(pos) < d {
			want.add(pos, how)
		}
	}
	var timers [][]byte
	err := s.e.call(ctx, func(*writer) {
		timers = v.timers.Share()
		v.txns.EachBelow(d, func(h *txn.Half) { add(h.Pos, needed) })
		v.carried.EachHeld(func(_ queue.Key, h *record.Held) { add(h.Pos, needed) })
	})
	if err != nil {
		return err
	}
	timer.EachShared(timers, func(pos record.Pos) {
		if pos < d {
			add(pos, needed)
		}
	})
	if err := s.late(ctx, add); err != nil {
		return err
	}
	return s.move(ctx, want)
}

// late finds the entries of messages that got their places in the part that stays and stand in the one that
// goes.
func (s *step) late(ctx context.Context, add func(pos record.Pos, how bool)) error {
	v := &s.e.views
	type entry struct {
		key queue.Key
		off record.QueueOffset
		pos record.Pos
	}
	var found []entry
	judge := func() error {
		err := s.e.call(ctx, func(*writer) {
			of := map[record.TopicID]bool{}
			for i := range found {
				of[found[i].key.Topic] = true
			}
			r := v.readersOf(of)
			for i := range found {
				f := &found[i]
				add(f.pos, !v.isDone(&r, f.key, f.off))
			}
		})
		found = found[:0]
		return err
	}
	for i := range s.firsts {
		it := &s.firsts[i]
		lo, hi := v.queues.Bounds(keyOf(it))
		err := s.eachLate(ctx, keyOf(it), lo, hi, func(off record.QueueOffset, e queue.Entry) error {
			found = append(found, entry{keyOf(it), off, e.Pos})
			if len(found) >= lateLook {
				return judge()
			}
			return ctx.Err()
		})
		if err != nil && !gone(err) {
			return err
		}
	}
	if len(found) == 0 {
		return nil
	}
	return judge()
}

// damaged lets a message go with the part of the log that it stands in, since no other step could read it
// either and the log must not grow for ever. Whoever asks for it from then on hears that it is deleted: its place
// is done for all groups.
func (s *step) damaged(pos record.Pos, err error) {
	s.k.note(func(t *Retention) { t.Damaged++ })
	if attrs, fresh := s.e.meet(s.e.views.carried.Present(pos), err); fresh {
		s.e.o.Log.LogAttrs(context.Background(), slog.LevelError, "stored message is damaged: retention could not carry it forward and goes on without it; check the disk",
			append(attrs, slog.Int64("message", int64(pos)))...)
	}
}

// move carries messages, in the order in which they were written first, which is that of reading them.
func (s *step) move(ctx context.Context, want need) error {
	began, read := time.Now(), int64(0)
	var portion []record.Record
	var refs []commitlog.Ref
	size := 0
	release := func() {
		for _, r := range refs {
			r.Release()
		}
		portion, refs, size = portion[:0], refs[:0], 0
	}
	defer release()
	flush := func() error {
		defer release()
		var failed error
		err := s.e.call(ctx, func(w *writer) { failed = s.put(w, portion) })
		if err == nil {
			err = failed
		}
		return err
	}
	for _, pos := range slices.Sorted(maps.Keys(want)) {
		rec, ref, err := s.e.read(pos, 0)
		if gone(err) {
			continue // an earlier step left it out, since everybody had done it
		}
		if mqerr.Is(err, mqerr.Corrupt) {
			s.damaged(pos, err)
			continue
		}
		if err != nil {
			return err
		}
		if !want[pos] && !committed(&rec) {
			ref.Release()
			continue
		}
		portion, refs = append(portion, rec), append(refs, ref)
		size += int(rec.Size)
		if read += int64(rec.Size); size < movePortion {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
		if err := s.e.pace(ctx, began, read); err != nil {
			return err
		}
	}
	if len(portion) == 0 {
		return nil
	}
	return flush()
}

// committed tells whether a message that has a late place got it from a verdict.
func committed(rec *record.Record) bool {
	m, err := messageOf(rec)
	return err == nil && m.Type == record.MsgTransaction
}

// pace waits until n bytes may have been read since a time.
func (e *Engine) pace(ctx context.Context, began time.Time, n int64) error {
	due := time.Duration(float64(n) / float64(e.o.Retention.Rate) * float64(time.Second))
	ahead := due - time.Since(began)
	if ahead < 10*time.Millisecond {
		return ctx.Err()
	}
	pause := time.NewTimer(ahead)
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}

// put writes a portion on the writer.
func (s *step) put(w *writer, portion []record.Record) error {
	n := int64(0)
	for i := range portion {
		in := &portion[i]
		m := record.Wrap(in)
		if !w.hasSpace(space.Retention, record.MoveSize(&m)+moveBytes) {
			return w.noSpace(space.Retention)
		}
		pos, body := w.batch.Begin(record.Header{Type: record.TypeMove, Epoch: w.epoch, Time: w.stamp}, record.MoveSize(&m))
		record.PutMove(body, &m)
		size := w.batch.Seal()
		w.views.stamp = w.stamp
		if err := w.views.applyMove(pos, size, w.stamp, in); err != nil {
			w.broken(err)
		}
		n++
	}
	s.moved += n
	s.k.note(func(t *Retention) { t.Carried += n })
	return nil
}
