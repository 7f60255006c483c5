package engine

import (
	"context"
	"slices"

	"github.com/perigee-mq/perigee/broker/carry"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/redriven"
	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// step is one deletion: the log is to begin at plan.D. It runs beside the writer, which it asks for records and
// for looks at the views, a bounded part in each turn.
//
// First the queues begin later (TRIM): from then on nothing below their first offsets is handed out for the
// first time, so what refers to the part that goes only gets less. Then everything that refers to it is carried
// forward (MOVE), which changes no view but the one that says where. Then the last TRIM says that the rest may
// be forgotten, and a SNAPSHOT what the views were behind it. When that is durable, and a checkpoint is, the
// files go.
type step struct {
	k        *keeper
	e        *Engine
	plan     retain.Plan
	consumed bool // nothing may go that somebody has yet to read
	low      bool // there is little space

	lost   map[carry.Reader]int64
	moved  int64
	firsts []record.TrimQueue // the queues of the log, with what they begin at
	met    queue.Damage       // newest that hides where a group begins
	given  map[queue.Key]bool // queues that can be neither read nor mended
	snap   int64              // bytes of the SNAPSHOT
	behind record.Pos         // its end
}

func (s *step) run(ctx context.Context) error {
	s.lost = map[carry.Reader]int64{}
	for _, part := range []func(context.Context) error{s.makeRoom, s.trim, s.carry, s.finish} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Bounds of one turn of a step.
const (
	trimQueues = 256     // queues that begin later
	trimHeld   = 1024    // entries that are held, of more than one queue
	heldMax    = 1 << 16 // of one queue: a step that would hold more waits
	moveBytes  = 64      // the most that a MOVE takes beside the record that it carries
)

// trim makes the queues begin later.
func (s *step) trim(ctx context.Context) error {
	if err := s.findFirsts(ctx); err != nil {
		return err
	}
	if err := s.warm(ctx); err != nil {
		return err
	}
	for at := 0; at < len(s.firsts); {
		var failed error
		err := s.e.call(ctx, func(w *writer) {
			n := 0
			n, failed = s.trimSome(w, s.firsts[at:])
			at += n
		})
		if err == nil {
			err = failed
		}
		if d, damaged := queue.DamageOf(err); damaged && !s.given[d.Key] && ctx.Err() == nil {
			s.mendOrGive(ctx, d)
			continue
		}
		if err != nil {
			return err
		}
	}
	s.report(ctx)
	return nil
}

// findFirsts finds, for each queue, the first offset that stays: everything from there on got its place in the
// part of the log that stays. It reads queues that nobody changes there.
func (s *step) findFirsts(ctx context.Context) error {
	for _, key := range s.e.views.queues.Keys() {
		var first record.QueueOffset
		err := s.e.mending(ctx, func() (err error) { first, err = s.firstOf(key); return err })
		if d, damaged := queue.DamageOf(err); damaged && ctx.Err() == nil {
			first, err = s.firstOver(ctx, key, d)
		}
		if err != nil {
			return err
		}
		s.firsts = append(s.firsts, record.TrimQueue{Topic: key.Topic, Queue: key.Queue, First: first})
	}
	return nil
}

// firstOf finds the first offset of a queue that stays.
func (s *step) firstOf(key queue.Key) (record.QueueOffset, error) {
	v := &s.e.views
	first, err := v.queues.Seek(key, func(e *queue.Entry) bool { return e.Time < s.plan.Time })
	if err != nil {
		return 0, err
	}
	// Within the millisecond of the boundary the position tells; that of a message which got its place late
	// tells nothing, so those go.
	var buf [scanBuffer]queue.Entry
	for {
		n, err := v.queues.Read(key, first, buf[:])
		if gone(err) { // another look has trimmed it
			first, _ = v.queues.Bounds(key)
			continue
		}
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(buf[:n], func(e queue.Entry) bool { return e.Time > s.plan.Time || e.Pos >= s.plan.D }); i >= 0 {
			return first + record.QueueOffset(i), nil
		}
		if first += record.QueueOffset(n); n == 0 {
			return first, nil
		}
	}
}

// warm reads the entries that are about to be held, so that the writer need not wait for the disk.
func (s *step) warm(ctx context.Context) error {
	v := &s.e.views
	for at := 0; at < len(s.firsts); {
		held := map[queue.Key][]record.QueueOffset{}
		var failed error
		err := s.e.call(ctx, func(w *writer) {
			part := s.firsts[at:min(len(s.firsts), at+trimQueues)]
			r := v.readersOf(topicsOf(part))
			for i, n := 0, 0; i < len(part) && n < heldMax && failed == nil; i++ {
				offs := v.heldBelow(&r, &part[i])
				held[keyOf(&part[i])] = offs
				n += len(offs)
				failed = tooManyHeld(&part[i], offs)
				at++
			}
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
		for key, offs := range held {
			for _, off := range offs {
				err := s.e.mending(ctx, func() error { _, err := v.entryAt(key, off); return err })
				if _, damaged := queue.DamageOf(err); err != nil && !gone(err) && !damaged {
					return err
				}
			}
		}
	}
	return nil
}

func topicsOf(items []record.TrimQueue) map[record.TopicID]bool {
	of := map[record.TopicID]bool{}
	for i := range items {
		of[items[i].Topic] = true
	}
	return of
}

// heldBelow are the offsets below the new first one of a queue that are leased or wait for a retry, by any
// group. A dead letter that was moved on is done for everybody. Of more than heldMax
// some may be missing, but more than heldMax are there.
func (v *views) heldBelow(r *readers, it *record.TrimQueue) []record.QueueOffset {
	var offs []record.QueueOffset
	most := heldMax + 1 + int(v.redriven.Count(redriven.Key{Topic: it.Topic, Queue: it.Queue}, 0, it.First))
	for _, g := range r.handed[keyOf(it)] {
		offs = v.pop.Below(pop.Key{Group: g, Topic: it.Topic, Queue: it.Queue}, it.First, most, offs)
	}
	slices.Sort(offs)
	offs = slices.Compact(offs)
	return slices.DeleteFunc(offs, func(off record.QueueOffset) bool {
		return v.redriven.Has(redriven.Key{Topic: it.Topic, Queue: it.Queue}, off)
	})
}

// tooManyHeld refuses a queue with more old messages under lease than a step may hold.
func tooManyHeld(it *record.TrimQueue, offs []record.QueueOffset) error {
	if len(offs) <= heldMax {
		return nil
	}
	return mqerr.New(mqerr.Exhausted, "queue %d of topic %d has more than %d old messages under lease: they are waited for", it.Queue, it.Topic, heldMax)
}

// trimSome makes some of the queues begin later, and returns how many it dealt with.
func (s *step) trimSome(w *writer, all []record.TrimQueue) (int, error) {
	v := &w.views
	w.flushAcks()
	w.flushEndings()
	w.flushOffsets()
	part := all[:min(len(all), trimQueues)]
	r := v.readersOf(topicsOf(part))
	rec := record.Trim{At: s.plan.D, Time: s.plan.Time}
	n, held := 0, 0
	for ; n < len(part); n++ {
		it := part[n]
		lo, hi := v.queues.Bounds(keyOf(&it))
		if hi == 0 {
			continue // deleted meanwhile
		}
		it.First = min(max(it.First, lo), hi)
		offs := v.heldBelow(&r, &it)
		if n > 0 && held+len(offs) > trimHeld {
			break
		}
		if err := tooManyHeld(&it, offs); err != nil {
			return 0, err
		}
		held += len(offs)
		for _, off := range offs {
			e, err := v.entryAt(keyOf(&it), off)
			if _, damaged := queue.DamageOf(err); damaged {
				s.unheld(&it, off, err)
				continue
			}
			if err != nil {
				return 0, err
			}
			it.Held = append(it.Held, carry.HeldOf(off, &e))
		}
		if it.First > lo || !v.carried.Holds(keyOf(&it), it.Held) {
			rec.Queues = append(rec.Queues, it)
		}
	}
	if len(rec.Queues) == 0 {
		return n, nil
	}
	lost, err := v.unreadOf(rec.Queues)
	switch {
	case err != nil:
		return 0, err
	case s.toMend(lost.unknown) != nil:
		return 0, s.toMend(lost.unknown)
	case s.consumed && (lost.total()+lost.orphans > 0 || len(lost.unknown) > 0):
		return 0, mqerr.New(mqerr.Invalid, "somebody wants to read old messages again: they stay")
	}
	if err := w.putTrim(&rec); err != nil {
		return 0, err
	}
	for who, n := range lost.of {
		s.lost[who] += n
	}
	for i := range rec.Queues {
		if t := w.topics.byID[rec.Queues[i].Topic]; t != nil {
			w.shown(t, rec.Queues[i].Queue) // what waited behind what is gone may be ready
		}
	}
	return n, nil
}

// putTrim logs and applies a TRIM.
func (w *writer) putTrim(t *record.Trim) error {
	size := record.TrimSize(t)
	switch {
	case size > w.e.log.MaxBody():
		return mqerr.New(mqerr.Exhausted, "old messages under lease need a record of %d bytes, at most %d fit: they are waited for", size, w.e.log.MaxBody())
	case !w.hasSpace(space.Retention, size+record.HeaderSize):
		return w.noSpace(space.Retention)
	}
	w.put(record.TypeTrim, size, func(body []byte) { record.PutTrim(body, t) })
	if err := w.views.applyTrim(t); err != nil {
		w.broken(err)
	}
	return nil
}
