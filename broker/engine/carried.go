package engine

import (
	"github.com/perigee-mq/perigee/broker/carry"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// sectionCarried is the section of a checkpoint with what retention left of the deleted part of the log.
const sectionCarried = "carried"

// read returns the record of a message by the position at which it was written first, wherever it stands by
// now; its header is the one that it was written with. size is what the caller knows of its length, or 0. A
// message that retention has deleted is NotFound. It may be called from anywhere.
func (e *Engine) read(pos record.Pos, size uint32) (record.Record, commitlog.Ref, error) {
	return readCarried(e.log, e.views.carried, pos, size)
}

func readCarried(log *commitlog.Log, carried *carry.Table, pos record.Pos, size uint32) (record.Record, commitlog.Ref, error) {
	rec, ref, err := log.Read(pos, size)
	for tries := 0; tries < carriedTries && mqerr.Is(err, mqerr.NotFound); tries++ {
		p, is := carried.At(pos)
		if !is && pos >= log.First() {
			return rec, ref, err // in a hole
		}
		if !is {
			return rec, ref, errDeleted(pos)
		}
		rec, ref, err = log.Read(p.Pos, p.Size)
	}
	if err != nil || rec.Type != record.TypeMove {
		return rec, ref, err
	}
	if rec, err = record.Unwrap(rec); err != nil {
		ref.Release()
		return record.Record{}, commitlog.Ref{}, err
	}
	return rec, ref, nil
}

// carriedTries is how often a reader looks again for a message that is carried on while it looks.
const carriedTries = 3

func errDeleted(pos record.Pos) error {
	return mqerr.New(mqerr.NotFound, "the message of position %d was deleted by retention", pos)
}

// isHole tells whether a queue entry is of a message that was deleted, because everybody who read its queue had
// done it, or that is lost in a hole of the log: it is done for who comes later as well.
func (w *writer) isHole(pos record.Pos) bool {
	if pos >= w.e.log.First() {
		return w.e.log.Lost(pos)
	}
	_, carried := w.views.carried.At(pos)
	return !carried
}

// gone tells whether a message could not be read because retention has deleted it, or because it is in a hole
// of the log that is known: it is not damaged.
func gone(err error) bool { return mqerr.Is(err, mqerr.NotFound) }

// entries reads queue entries from off on, as queue.Store.Read does; of what lies below the first offset of
// the queue, one that is held.
func (v *views) entries(k queue.Key, off record.QueueOffset, dst []queue.Entry) (int, error) {
	n, err := v.queues.Read(k, off, dst)
	if n == 0 && len(dst) > 0 && mqerr.Is(err, mqerr.NotFound) {
		if e, is := v.carried.Held(k, off); is {
			dst[0] = e
			return 1, nil
		}
	}
	return n, err
}

// entryAt reads one queue entry, which may be held. NotFound if there is none.
func (v *views) entryAt(k queue.Key, off record.QueueOffset) (queue.Entry, error) {
	e, err := v.queues.At(k, off)
	if mqerr.Is(err, mqerr.NotFound) {
		if held, is := v.carried.Held(k, off); is {
			return held, nil
		}
	}
	return e, err
}

// applyMove takes a MOVE record, whose message was written first at in.Pos.
func (v *views) applyMove(pos record.Pos, size uint32, at int64, in *record.Record) error {
	m, err := messageOf(in)
	if err != nil {
		return err
	}
	v.index.add(pos, at, &m)
	return v.carried.Move(in.Pos, pos, size)
}

// heldPlace looks for the place of a message among what is held.
func (v *views) heldPlace(pos record.Pos) (k queue.Key, off record.QueueOffset, is bool) {
	v.carried.EachHeld(func(key queue.Key, h *record.Held) {
		if h.Pos == pos {
			k, off, is = key, h.Offset, true
		}
	})
	return k, off, is
}

// reader names a group on a topic as the count of what it lost does.
func reader(g record.GroupID, t record.TopicID) carry.Reader {
	return carry.Reader{Group: g, Topic: t}
}
