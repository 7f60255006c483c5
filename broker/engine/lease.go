package engine

import (
	"slices"
	"time"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// popOp leases messages for a group.
type popOp struct {
	waiter
	from  *session
	req   *brokerapi.PopRequest
	done  func(*brokerapi.PopReply, error)
	err   error
	more  bool
	full  bool        // the client has as many messages leased as it may
	lite  *liteClient // who asks, if it is a client of a lite group
	judge *judge      // of an SQL filter, once one was needed
	got   []leased
	wait  time.Duration // how long a message that cannot be read is left alone
	runs  int           // so far
	told  bool          // it is a receive that was repeated: what it is answered with was leased before
	orig  string        // see readable
	order bool          // the group is handed messages in order
}

// leased is one message of a reply.
type leased struct {
	queue   record.QueueID
	offset  record.QueueOffset
	lease   record.Pos
	attempt uint16
	pos     record.Pos // of the message
	size    uint32
	at      int64 // since when it shows, ms since 1970
}

// nameMax bounds client ids and attempt ids in bytes, since they stand in records.
const nameMax = 4096

// unreadPause is how long a message that cannot be read is left alone at least.
const unreadPause = 10 * time.Second

// popBytesDefault bounds a reply that states no bound of its own, popBytesMax any reply.
const (
	popBytesDefault = 4 << 20
	popBytesMax     = 64 << 20
)

func (o *popOp) bytes() int {
	return 256 + len(o.req.Client) + len(o.req.AttemptID) + len(o.req.Filter.SQL)
}

func (o *popOp) run(w *writer) {
	defer func() {
		if o.judge != nil && !o.again && o.aside == nil {
			o.judge.leave()
		}
	}()
	err := leasable(o.req)
	if err != nil {
		o.err = err
		return
	}
	if o.runs++; o.runs > 1 && o.late(w) {
		return
	}
	t, g, err := w.subscription(&o.req.Head, o.req.Topic, o.req.Group, o.bytes()+itemBytes*(popMax+w.e.o.ScanEntries))
	if err != nil {
		o.err = err
		return
	}
	w.e.counts.Pops.Add(1)
	o.wait, o.orig, o.order = max(g.LastBackoff(), unreadPause), t.givenUp(), g.InOrder()
	if isLite(t, g) {
		if o.req.Filter.Kind == brokerapi.FilterSQL {
			o.err = mqerr.New(mqerr.Unsupported, "consumer group %s reads lite topics: it takes tags, but no SQL filter", g.Name)
			return
		}
		o.lite = w.lite.client(w, t, g.ID, o.req.Client, o.from)
	}
	client, known := w.views.pop.Client([]byte(o.req.Client))
	if known {
		w.live.heard(w, client)
		if o.req.AttemptID != "" && o.repeat(w, t, g, client) {
			o.outlook(w, t, g)
			return
		}
	}
	room, who := w.room(g, client)
	if room == 0 {
		o.meets(w, t, g, who)
		return
	}
	s := t.sub(g.ID)
	j, err := w.judgeOf(s, &o.req.Filter)
	if err != nil {
		o.err = err
		return
	}
	if o.judge = j; j != nil {
		j.begin()
	}
	scan := scan{w: w, t: t, g: g, req: o.req, room: int(room), left: w.e.o.ScanEntries, judge: j, found: w.found.empty()}
	scan.run(s, o.lite)
	w.found = scan.found
	if scan.err != nil {
		w.queueDamaged(t, scan.err)
		if len(scan.got) == 0 {
			scan.giveBack()
			o.err = scan.err
			return
		}
	}
	switch {
	case len(scan.got) > 0:
		o.lease(w, t, g, client, known, &scan)
	case scan.skipped():
		scan.skip()
		if scan.left <= 0 {
			scan.giveBack()
			o.again = true // more entries to look at: others first
			return
		}
	}
	if j != nil && j.unknown && len(scan.got) == 0 {
		o.aside = func(w *writer) { j.wait(w, o, t, g) }
		return
	}
	if len(o.got) == 0 && w.tableFull() && w.hasReady(t, g) {
		scan.giveBack()
		o.err = w.refuseNew()
		return
	}
	if len(o.got) == 0 {
		w.e.counts.EmptyPops.Add(1)
	}
	scan.giveBack()
	o.outlook(w, t, g)
}

// late answers a receive that has looked for messages until its time was over, or whose proxy has gone:
// with nothing. What the filter let pass is done.
func (o *popOp) late(w *writer) bool {
	if o.from != nil && o.from.closed {
		o.err = errGone
		return true
	}
	over := !o.req.Deadline.IsZero() && o.req.Deadline.Before(w.now)
	o.more = over
	return over
}

// leasable refuses a request whose lease could not stand in a record.
func leasable(req *brokerapi.PopRequest) error {
	switch {
	case max(len(req.Client), len(req.AttemptID)) > nameMax:
		return mqerr.New(mqerr.Invalid, "a client id of %d and an attempt id of %d bytes: at most %d", len(req.Client), len(req.AttemptID), nameMax)
	case req.Session && req.Client == "":
		return mqerr.New(mqerr.Invalid, "a lease that lives with its client needs a client id")
	}
	return nil
}

// outlook tells whether there is more right now, and arms if not.
func (o *popOp) outlook(w *writer, t *topicState, g *group.Definition) {
	if o.lite != nil {
		o.outlookLite(w)
		return
	}
	left, _ := w.room(g, 0)
	o.more = left > 0 && w.hasReady(t, g)
	if left == 0 {
		w.awaitGroup(t, g.ID, nil)
	}
	if o.req.Arm && !o.more {
		w.ready.arm(t.sub(g.ID), o.from)
	}
}

// lease makes the record of what was found.
func (o *popOp) lease(w *writer, t *topicState, g *group.Definition, client record.ClientNum, known bool, found *scan) {
	ck := record.PopCk{Topic: t.def.ID, Group: g.ID, Session: o.req.Session, Client: client, AttemptID: []byte(o.req.AttemptID), Ordered: found.ordered, Sections: found.sections}
	ck.Until = w.until(o.req.Invisible)
	if ck.Session {
		ck.Until = w.lease + w.e.o.SessionLeaseMax.Milliseconds()
	}
	if !known && o.req.Client != "" {
		ck.Client, ck.ClientName = w.views.pop.NewClientNum(), []byte(o.req.Client)
	}
	pos := w.putLease(&ck)
	if len(ck.ClientName) > 0 {
		w.live.heard(w, ck.Client)
	}
	w.e.counts.Leased.Add(int64(len(found.got)))
	u := t.sub(g.ID)
	for i := range found.got {
		u.out.add(int64(found.got[i].size))
		if found.got[i].attempt > 1 {
			w.e.counts.Redelivered.Add(1)
		}
		found.got[i].lease = pos
		if int(found.got[i].attempt) > g.MaxAttempts {
			u.overMax[found.got[i].queue]++
			w.e.counts.OverMax.Add(1)
		}
	}
	o.got = slices.Clone(found.got)
	o.end, o.sync = w.batch.End(), t.sync
}

// repeat answers with the un-done rest of the lease that the same attempt got before.
func (o *popOp) repeat(w *writer, t *topicState, g *group.Definition, client record.ClientNum) bool {
	for _, l := range w.views.pop.Again(w.lease, client, t.def.ID, g.ID, []byte(o.req.AttemptID)) {
		e, err := w.views.entryAt(queue.Key{Topic: t.def.ID, Queue: l.Queue}, l.Offset)
		if err != nil {
			w.queueDamaged(t, err)
			o.err = err
			return true
		}
		o.got = append(o.got, leased{queue: l.Queue, offset: l.Offset, lease: l.Lease, attempt: l.Attempt, pos: e.Pos, size: e.Size, at: e.Time})
	}
	if len(o.got) == 0 {
		return false
	}
	o.told = true
	o.end, o.sync = w.batch.End(), t.sync
	return true
}

// until is the end of a lease of d from now, never a moment early: the clock has lost its fraction of
// a millisecond. 0 ends it now.
func (w *writer) until(d time.Duration) int64 {
	if d <= 0 {
		return w.lease
	}
	return w.lease + d.Milliseconds() + 1
}
