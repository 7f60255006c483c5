package engine

import (
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/carry"
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/offset"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/broker/redriven"
	"github.com/perigee-mq/perigee/broker/timer"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/dedup"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/snapshot"
)

// views are everything a client can observe: a pure function of the log up to a position. The live
// path and recovery both change them through the apply functions only, so that a replay gives the
// same views.
type views struct {
	store    *store.Store
	queues   *queue.Store
	topics   *topic.Table
	groups   *group.Table
	lite     *lite.Table
	dups     *dedup.Window
	pop      *pop.Table
	txns     *txn.Table
	newTxn   func() *txn.Table
	timers   *timer.Table    // messages that wait for their time
	pulled   *offset.Table   // where pull consumers stand
	redriven *redriven.Table // dead letters that were moved on
	carried  *carry.Table    // what retention left of the deleted part of the log
	index    indexed
	epochs   epochs
	ahead    epochs // epochs of the whole log, of which a standby has not taken all
	epoch    record.Epoch
	stamp    int64            // newest store time, ms
	saved    record.Pos       // what recovery began with: a checkpoint's position, or the log's first
	unread   bool             // a consume queue could not be read, which would have told something that counts
	live     bool             // the replay is over: records are applied as they come
	found    []commitlog.Hole // that a refill has passed over and nobody has noted yet
	unbegun  func(*unknownBegin)
	hole     *behind         // the replay has passed over holes of the log, else nil
	begin    *commitlog.Past // what the replay stands behind from its first record on, else nil
}

func (v *views) init(o Options) {
	v.store = o.Store
	v.dups = o.Store.Duplicates()
	v.queues = o.Store.Queues()
	v.index.Store = o.Store.Index()
	v.newTxn = o.Txn.table
	v.reset()
}

// reset empties all views, as before the first record.
func (v *views) reset() {
	v.pop = pop.New(pop.Options{Dead: v.dead, Ordered: v.ordered, Groups: v.messageGroups})
	v.timers = timer.New()
	v.topics, v.groups, v.lite = topic.New(), group.New(), lite.New()
	v.pulled = offset.New()
	v.redriven = redriven.New()
	v.carried = carry.New()
	v.txns = v.newTxn()
	v.dups.Reset()
	v.epochs.reset()
	v.epoch, v.stamp, v.hole = 0, 0, nil
}

// recover loads the newest checkpoint and replays the log behind it. Without one, or if a queue cannot be
// read, everything is rebuilt from what there is of the log.
func (v *views) recover(o Options) error {
	began := time.Now()
	o.Recovery.begin(StageCheckpoint)
	c := v.store.Checkpoint()
	if c != nil && c.Pos < v.store.Log().First() {
		o.Log.Warn("checkpoint is of a part of the log that was deleted, rebuilding the views from the log", "position", int64(c.Pos))
		c = nil
	}
	from := record.Pos(-1)
	if c != nil {
		if err := v.decode(c); err != nil {
			o.Log.Warn("checkpoint cannot be used, rebuilding the views from the log: this start takes longer; check the disk if it was not another release that wrote it", "error", err.Error())
		} else {
			from = c.Pos
		}
	}
	var r commitlog.Recovered
	var n int64
	err := error(nil)
	if from >= 0 {
		r, n, err = v.replay(o, from)
		if err != nil && v.unread && from > v.store.Log().First() {
			o.Log.Warn("consume queue cannot be read, rebuilding the views from the log: this start takes longer; check the disk", "error", err.Error())
			from = -1
		}
	}
	if from < 0 {
		v.reset()
		var found *snapshot.Found
		if found, err = v.foundation(); err != nil {
			return err
		}
		if err := v.store.Forget(); err != nil {
			return err
		}
		if from, err = v.rebuild(o, found); err != nil {
			return err
		}
		r, n, err = v.replay(o, from)
	}
	if err == nil && !o.Standby {
		err = v.checkBegin(o)
	}
	if err != nil {
		return err
	}
	v.live = true
	o.Recovery.over(r.End)
	if f := o.Events.Recovered; f != nil {
		f(from, r.End, n, time.Since(began))
	}
	return nil
}

// replay applies the log from a record on, and returns how many records that were. For a standby it applies none.
func (v *views) replay(o Options, from record.Pos) (r commitlog.Recovered, n int64, err error) {
	v.saved, v.unread, v.epochs.end = from, false, from
	promised, err := v.store.Log().Promised()
	if err != nil {
		return r, 0, err
	}
	o.Recovery.replaying(from, promised)
	o.Log.Debug("recovery started", "from", int64(from))
	if v.hole != nil { // the queues were refilled over it
		v.pop.Behind(&v.hole.pop)
		if err := v.pop.Relock(); err != nil {
			return r, 0, err
		}
	}
	if v.begin != nil {
		v.pass(o, *v.begin)
		v.begin = nil
	}
	if o.Standby { // it only reads: what it takes into its views has to be confirmed first
		v.ahead = epochs{began: slices.Clone(v.epochs.began), end: from}
		r, err = v.store.Log().Recover(from, func(rec record.Record) error {
			v.ahead.take(&rec.Header)
			return o.Recovery.step(rec.Pos)
		})
		return r, 0, err
	}
	v.store.Judge(func() error {
		if len(v.found) > 0 {
			if err := v.store.Log().Note(v.found...); err != nil {
				return err
			}
		}
		if v.store.Skips() {
			return nil // what is missing is a hole behind this
		}
		return v.checkBegin(o)
	})
	r, err = v.store.Log().RecoverOver(from, func(rec record.Record) error {
		n++
		if err := o.Recovery.step(rec.Pos); err != nil {
			return err
		}
		v.index.settle()
		return v.apply(rec)
	}, func(p commitlog.Past) error { v.pass(o, p); return nil })
	if err == nil {
		err = v.close(o)
	}
	v.ahead = v.epochs
	return r, n, err
}
