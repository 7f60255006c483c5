package engine

import (
	"errors"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/snapshot"
)

// foundation finds what the views are to be rebuilt from: nil stands for the beginning of the log. If there are
// checkpoints, which a rebuild gives up, it reads the log first: one that is refused costs them not.
func (v *views) foundation() (*snapshot.Found, error) {
	first := v.store.Log().First()
	var found *snapshot.Found
	if first > 0 {
		var err error
		if found, err = v.findSnapshot(first); err != nil {
			return nil, err
		}
	}
	if has, err := v.store.HasCheckpoints(); err != nil || !has {
		return found, err
	}
	if found != nil {
		first = found.Begin
	}
	return found, v.store.Log().Judge(first)
}

// findSnapshot finds the SNAPSHOT of a log that does not begin at its beginning.
func (v *views) findSnapshot(first record.Pos) (*snapshot.Found, error) {
	found, err := snapshot.Find(first, v.scan)
	switch {
	case err != nil && !mqerr.Is(err, mqerr.Corrupt):
		return nil, err // the end of the log may be torn: that is for the recovery to judge
	case found != nil || v.store.Skips():
		return found, nil
	case err != nil:
		return nil, mqerr.New(mqerr.Corrupt, "the log begins at position %d, there is no checkpoint, and no complete SNAPSHOT before the place where the log is damaged: "+
			"bring that file back from a copy, or stop and run perigee debug repair, or go on with --on-damage skip: %w", first, err)
	}
	return nil, mqerr.New(mqerr.Corrupt, "the log begins at position %d, what was before is deleted, and neither a checkpoint nor a complete SNAPSHOT says what that came to: "+
		"bring the directory %q or missing files of the log back from a copy, take the data of a replica, or go on with --on-damage skip", first, "checkpoint")
}

// rebuild makes the views, which are empty, those at the position from which the log has to be replayed:
// its beginning, if all of it is there, else that of a SNAPSHOT. The queues' entries are not in it, but in
// the part of the log before that position.
func (v *views) rebuild(o Options, found *snapshot.Found) (record.Pos, error) {
	first := v.store.Log().First()
	if first == 0 {
		return 0, nil
	}
	if found == nil {
		v.begin = &commitlog.Past{Hole: commitlog.Hole{To: first, File: "log", Why: "what was before is deleted, and neither a checkpoint nor a complete SNAPSHOT says what that came to"}}
		return first, nil
	}
	o.Log.Info("rebuilding the views from a SNAPSHOT in the log", "position", int64(found.At), "log_begins_at", int64(first))
	c := found.Checkpoint()
	if err := v.refill(o, c, found.Begin); err != nil {
		return 0, err
	}
	if err := v.load(c); err != nil {
		return 0, err
	}
	return c.Pos, nil
}

// checkBegin refuses a log that lacks more of its beginning than retention has deleted: what nobody gave up is
// no message that was deleted. Told to go on, a start takes it for deleted from now on.
func (v *views) checkBegin(o Options) error {
	first, begin := v.store.Log().First(), v.carried.Begin()
	known := slices.ContainsFunc(v.store.Log().Holes(), func(h commitlog.Hole) bool { return h.From <= begin && h.To >= first })
	switch {
	case first <= begin || known:
		return nil
	case !v.store.Skips():
		return mqerr.New(mqerr.Corrupt, "the log begins at position %d, and only what lies before position %d was deleted: its oldest files are missing; "+
			"bring them back from a copy, take the data of a replica, or go on without them with --on-damage skip", first, begin)
	}
	o.Log.Error("the oldest files of the log are missing, going on without them", "from", int64(begin), "to", int64(first))
	v.carried.Finish(first)
	return nil
}

// refill gives the queues of a SNAPSHOT their entries: those of records from first on that gave places within
// the bounds of the queues. What it does not find has an entry of a lost message, which says nothing of its
// message group; the broker that wrote what is behind the SNAPSHOT may have known more: then the replay, too,
// stands behind a hole.
func (v *views) refill(o Options, c *checkpoint.Checkpoint, first record.Pos) error {
	data, err := c.Section(sectionQueues)
	if err != nil {
		return err
	}
	bounds, err := queue.DecodeBounds(data)
	if err != nil {
		return err
	}
	if data, err = c.Section(sectionCarried); err != nil {
		return err
	}
	if err := v.carried.Decode(data); err != nil {
		return err
	}
	ends := make(map[queue.Key]record.QueueOffset, len(bounds))
	f := filling{v: v, put: v.place, lost: func() { v.stand() }, wants: func(k queue.Key, off record.QueueOffset) bool {
		hi, is := ends[k] // else it was deleted since
		lo, _ := v.queues.Bounds(k)
		return is && off >= lo && off < hi
	}}
	for _, b := range bounds {
		if err := v.queues.Start(b.Key, b.Min); err != nil {
			return err
		}
		ends[b.Key] = b.Max
	}
	err = v.scanOver(first, func(r record.Record) error {
		if r.Pos >= c.Pos {
			return errEnd
		}
		return f.take(&r)
	}, func(p commitlog.Past) {
		if p.From >= c.Pos {
			return // the replay meets it
		}
		if !p.Known {
			v.found = append(v.found, p.Hole)
		}
		v.pass(o, p)
	})
	if err != nil && !errors.Is(err, errEnd) {
		return err
	}
	for _, b := range bounds {
		if v.hole != nil {
			_, next := v.queues.Bounds(b.Key)
			v.hole.room += max(0, int64(b.Max-next)) // the SNAPSHOT itself says that they are missing
			if err := v.fill(b.Key, b.Max, v.stamp); err != nil {
				return err
			}
		}
		if _, hi := v.queues.Bounds(b.Key); hi != b.Max {
			return mqerr.New(mqerr.Corrupt, "topic %d queue %d ends at offset %d by the log, and at %d by the SNAPSHOT of position %d", b.Key.Topic, b.Key.Queue, hi, b.Max, c.Pos)
		}
	}
	return nil
}

// filling looks for queue entries in records that gave places.
type filling struct {
	v     *views
	wants func(queue.Key, record.QueueOffset) bool
	put   func(queue.Key, record.QueueOffset, queue.Entry) error // one that is wanted
	lost  func()                                                 // what a verdict is about is lost
}

// take takes the entries of one record.
func (f *filling) take(r *record.Record) error {
	switch r.Type {
	case record.TypeMsg:
		m, err := record.DecodeMsg(r.Body)
		if err != nil || m.Offset < 0 {
			return err
		}
		return f.append(queue.Key{Topic: m.Topic, Queue: m.Queue}, m.Offset, entryOf(r, &m))
	case record.TypeDead:
		d, err := record.DecodeDead(r.Body)
		if err != nil {
			return err
		}
		return f.append(queue.Key{Topic: d.Msg.Topic, Queue: d.Msg.Queue}, d.Msg.Offset, entryOf(r, &d.Msg))
	case record.TypeDeliver:
		d, err := record.DecodeDeliver(r.Body)
		if err != nil {
			return err
		}
		for i := range d.Items {
			p := &d.Items[i]
			if err := f.append(queue.Key{Topic: d.Topic, Queue: p.Queue}, p.Offset, entryOfPlace(p, r.Time)); err != nil {
				return err
			}
		}
	case record.TypeTxnEnd:
		e, err := record.DecodeTxnEnd(r.Body)
		if err != nil {
			return err
		}
		return f.commits(r.Time, &e)
	}
	return nil
}

func entryOf(r *record.Record, m *record.Msg) queue.Entry {
	return queue.Entry{Pos: r.Pos, Size: r.Size, Time: r.Time, TagHash: m.TagHash, GroupHash: m.GroupHash}
}

// commits takes the entries of verdicts. What is to be known of the message is in its own record. If that is
// lost, in a hole or since it was damaged when it was to be carried forward, it is an entry without a size.
func (f *filling) commits(at int64, e *record.TxnEnd) error {
	for _, p := range e.Committed {
		k := queue.Key{Topic: e.Topic, Queue: p.Queue}
		if !f.wants(k, p.Offset) {
			continue
		}
		rec, ref, err := readCarried(f.v.store.Log(), f.v.carried, p.Half, 0)
		if gone(err) || mqerr.Is(err, mqerr.Corrupt) && f.v.store.Skips() {
			f.lost()
			if err := f.append(k, p.Offset, queue.Entry{Pos: p.Half, Time: at}); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		m, err := messageOf(&rec)
		entry := queue.Entry{Pos: p.Half, Size: rec.Size, Time: at, TagHash: m.TagHash, GroupHash: m.GroupHash}
		ref.Release()
		if err != nil {
			return err
		}
		if err := f.append(k, p.Offset, entry); err != nil {
			return err
		}
	}
	return nil
}

func (f *filling) append(k queue.Key, off record.QueueOffset, e queue.Entry) error {
	if !f.wants(k, off) {
		return nil
	}
	return f.put(k, off, e)
}
