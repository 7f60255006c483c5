package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// A replay that passes over a hole of the log does not know what the records in it said. Behind the first
// hole a record that does not fit the views is made to: each view takes what is certain and decides for
// another delivery where it is not. ADR 11 says what each kind of record does then. Without a hole nothing
// is forgiven.

// behind is what the views know of the holes that the replay has passed over.
type behind struct {
	pop    pop.Hole
	passed bool       // there is a hole, not only something that retention let go of
	from   record.Pos // of the newest hole
	// room is how many queue entries the holes may have had, less those that were found to be missing.
	room    int64
	all     bool  // nothing of what was before is known
	lost    int64 // queue entries that are missing
	forced  int64 // records that did not fit
	dropped int64 // of them, those of which nothing could be used
}

// entryBytesMin is the least that a queue entry takes in any record: a committed message in TXN_END.
const entryBytesMin = 3

// stand makes the views forgive from here on: something that the log said before is not known.
func (v *views) stand() *behind {
	if v.hole == nil {
		v.hole = &behind{}
		v.hole.pop.Start = v.startLost
		v.pop.Behind(&v.hole.pop)
	}
	return v.hole
}

// pass takes a hole.
func (v *views) pass(o Options, p commitlog.Past) {
	first := v.hole == nil
	h := v.stand()
	h.passed = true
	h.all = h.all || first && p.From == 0
	h.from, h.room = p.From, h.room+p.Bytes()/entryBytesMin
	h.pop.Lease, h.pop.Now = p.From, v.stamp
	level := slog.LevelWarn
	if p.Known {
		level = slog.LevelInfo
	}
	o.Log.LogAttrs(context.Background(), level, "a part of the log is lost: recovery goes on behind it; bring the file back from a copy if there is one, check the disk",
		slog.String("file", p.File), slog.Int64("offset", p.Offset), slog.Int64("from", int64(p.From)), slog.Int64("to", int64(p.To)),
		slog.Int64("bytes", p.Bytes()), slog.String("error", p.Why))
}

// scan reads the log before its recovery: over holes, and over damage if a start skips that.
func (v *views) scan(from record.Pos, fn func(record.Record) error) error {
	return v.scanOver(from, fn, func(commitlog.Past) {})
}

// scanOver is scan that tells lost of what it passes over.
func (v *views) scanOver(from record.Pos, fn func(record.Record) error, lost func(commitlog.Past)) error {
	if !v.store.Skips() && len(v.store.Log().Holes()) == 0 {
		return v.store.Log().Scan(from, fn)
	}
	_, torn, err := v.store.Log().ScanPast(from, fn, func(p commitlog.Past) error {
		if !p.Known && !v.store.Skips() {
			return mqerr.New(mqerr.Corrupt, "%s: %s", p.Hole, p.Why)
		}
		lost(p)
		return nil
	})
	if err == nil {
		err = torn
	}
	return err
}

// applyBehind is apply for a record behind a hole.
func (v *views) applyBehind(r record.Record) error {
	v.hole.pop.Now = r.Time
	v.epoch = max(v.epoch, r.Epoch) // its EPOCH record may be lost
	err := v.applyRecord(r)
	if mqerr.Is(err, mqerr.Corrupt) && !v.unread {
		v.hole.dropped++
		return nil
	}
	return err
}

// close makes the views whole at the end of a replay that passed over holes: what a group was handed or has
// stored has an offset in its queue, so that the next message does not get it again.
func (v *views) close(o Options) error {
	h := v.hole
	if h == nil {
		return nil
	}
	ends := map[pop.Key]record.QueueOffset{}
	v.pop.Ends(func(k pop.Key, next record.QueueOffset) { ends[k] = next })
	v.pulled.Each(func(k offset.Key, at record.QueueOffset) {
		key := pop.Key{Group: k.Group, Topic: k.Topic, Queue: k.Queue}
		ends[key] = max(ends[key], at)
	})
	held := map[queue.Key][]record.QueueOffset{}
	v.carried.EachHeld(func(k queue.Key, h *record.Held) { held[k] = append(held[k], h.Offset) })
	for _, k := range slices.SortedFunc(maps.Keys(ends), pop.Key.Compare) { // what room is left for is the same each time
		end := ends[k]
		key := queue.Key{Topic: k.Topic, Queue: k.Queue}
		err := v.fill(key, end, v.stamp)
		if mqerr.Is(err, mqerr.Corrupt) { // no hole can explain it
			h.dropped++
			_, next := v.queues.Bounds(key)
			v.pop.Cut(k, next)
			err = v.cutPulled(k, next)
		}
		if err != nil {
			return err
		}
	}
	for k := range ends { // the bounds are known by now
		key := queue.Key{Topic: k.Topic, Queue: k.Queue}
		lo, _ := v.queues.Bounds(key) // what is below was deleted
		slices.Sort(held[key])
		v.pop.Trim(k, lo, held[key], nil)
	}
	level := slog.LevelWarn
	if !h.passed && h.lost+h.forced+h.dropped == 0 {
		level = slog.LevelDebug
	}
	o.Log.LogAttrs(context.Background(), level, "the views were rebuilt without lost parts of the log; what was not known to be done is delivered again",
		slog.Int64("messages_without_entry", h.lost), slog.Int64("records_made_to_fit", h.forced), slog.Int64("records_left_out", h.dropped))
	v.hole = nil
	v.pop.Behind(nil)
	return nil
}

// cutPulled takes a stored position back to an end.
func (v *views) cutPulled(k pop.Key, end record.QueueOffset) error {
	if at, _ := v.pulled.Get(offset.Key{Group: k.Group, Topic: k.Topic, Queue: k.Queue}); at <= end {
		return nil
	}
	return v.pulled.Apply(&record.OffsetItem{Group: k.Group, Topic: k.Topic, Queue: k.Queue, Offset: end, Kind: record.OffsetReset})
}

// place appends a queue entry. Behind a hole, those before it that are missing are lost messages: each has an
// entry without a size, at a position in the hole.
func (v *views) place(k queue.Key, off record.QueueOffset, e queue.Entry) error {
	if v.hole == nil {
		return v.queues.Append(k, off, e)
	}
	if err := v.fill(k, off, e.Time); err != nil {
		return err
	}
	if _, next := v.queues.Bounds(k); off < next {
		v.hole.dropped++ // the place is taken
		return nil
	}
	return v.queues.Append(k, off, e)
}

// fill gives a queue entries of lost messages up to an offset.
func (v *views) fill(k queue.Key, to record.QueueOffset, at int64) error {
	_, next := v.queues.Bounds(k)
	if next == 0 && to > 0 && v.hole.all {
		return v.queues.Start(k, to) // nothing of what was before is known
	}
	n := int64(to - next)
	switch {
	case n <= 0:
		return nil
	case n > v.hole.room:
		return mqerr.New(mqerr.Corrupt, "topic %d queue %d: %d messages are missing before offset %d, more than the holes of the log can explain", k.Topic, k.Queue, n, to)
	}
	v.hole.room -= n
	v.hole.lost += n
	for ; next < to; next++ {
		if err := v.queues.Append(k, next, queue.Entry{Pos: v.hole.from, Time: at}); err != nil {
			return err
		}
	}
	return nil
}

// exists tells whether there is a topic. Behind a hole there is: its definition was lost and comes again from
// the controller, or its deletion does. Until then it has a name that no client can use.
func (v *views) exists(id record.TopicID) bool {
	if v.topics.Get(id) != nil {
		return true
	}
	if v.hole == nil {
		return false
	}
	v.hole.forced++
	d := topic.Definition{ID: id, Name: fmt.Sprintf("%%LOST%%%d", id), Queues: 1}
	m, err := d.Meta()
	return err == nil && v.topics.Apply(&m) == nil
}

// startLost is where a group begins in a queue if the record that said so is lost: at the first message.
func (v *views) startLost(k pop.Key) record.QueueOffset {
	lo, _ := v.queues.Bounds(queue.Key{Topic: k.Topic, Queue: k.Queue})
	return lo
}
