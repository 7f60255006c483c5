package engine

import (
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// waiter says what an answer waits for: nothing (end 0), that the log is written up to end, or that
// it is durable up to end.
type waiter struct {
	end  record.Pos
	sync bool
	// again puts the request back for another turn instead of answering it.
	again bool
	// parked says that the request waits somewhere else, and counts nowhere until it comes back.
	parked bool
	// aside, if set, is called instead of answering once the records of the turn are written: the request
	// comes back when it has found what it needs.
	aside func(w *writer)
	// held is what the request counts in the inbox until it is answered, 0 for one of the engine's own.
	held int64
}

func (w *waiter) waits() *waiter { return w }

// writer is the state of the writer goroutine. Nothing here has a lock.
type writer struct {
	e       *Engine
	views   views
	batch   *commitlog.Batch
	reach   record.Pos // end of the log's files that are there, as seen last
	epoch   record.Epoch
	began   record.Pos // end of the log when this process began to append
	spare   []op
	backlog []op // taken from the inbox, not run yet
	later   []op // run in part; they go on behind what came meanwhile
	synced  []op // run; their answers wait for fdatasync, in order of their positions

	now     time.Time // of this turn, for deadlines of requests
	lease   int64     // boot-time clock of this turn, ms
	stamp   int64     // store time of this turn, ms; never goes back
	off     answered  // since the inbox was told
	acks    acks
	offsets offsets
	delays  delays
	pulls   pulls
	found   found // memory of the last scan
	topics  topics
	wanted  wanted
	graves  graves
	txns    txns
	judges  judges
	ready   ready
	live    sessions
	lite    lites
	saved   saved
	full    fulls
	closing *closeOp // set by the request to stop
	closed  bool     // the last turn is over
	failed  error    // the log failed
	bug     error    // the views refused a record
}

func (w *writer) init(e *Engine) {
	w.e = e
	w.batch = e.log.NewBatch()
	w.views.init(e.o)
	w.wanted = wanted{}
	w.graves.warned = map[record.GroupID]int64{}
	w.topics.init(w)
	w.txns.init()
	w.pulls.init(w)
	w.ready.init()
	w.live.init()
}

// begin writes the first record of an epoch and makes it durable, before anything is served.
func (e *Engine) begin(id Identity) error {
	w := &e.writer
	w.epoch = id.Epoch
	if last := w.views.epoch; id.Epoch <= last {
		return mqerr.New(mqerr.Fenced, "epoch %d is over: the log already holds epoch %d", id.Epoch, last)
	}
	w.tick()
	w.batch.Reset()
	start := record.EpochStart{Epoch: id.Epoch, Incarnation: id.Incarnation, Replica: id.Replica, Sync: [][16]byte{id.Replica}, Version: id.SetVersion}
	w.put(record.TypeEpoch, record.EpochStartSize(&start), func(body []byte) { record.PutEpochStart(body, &start) })
	w.views.epoch = id.Epoch
	w.views.epochs.began = append(w.views.epochs.began, begun{id.Epoch, e.log.Written()})
	if err := e.log.Write(w.batch); err != nil {
		return err
	}
	if err := e.log.Sync(); err != nil {
		return err
	}
	w.began = e.log.Written()
	w.topics.load()
	w.lite.load(w)
	w.live.load(w)
	w.saved.at = w.views.saved
	e.spaces.costs.saved.Store(int64(w.saved.at))
	return nil
}

// put appends one record to the batch. One that gives older messages their places never has the store time
// of a group before it: see afterLogged.
func (w *writer) put(t record.Type, size int, fill func(body []byte)) record.Pos {
	if t == record.TypeDeliver || t == record.TypeTxnEnd {
		w.stamp = max(w.stamp, w.views.groups.Logged()+1)
	}
	pos, body := w.batch.Begin(record.Header{Type: t, Epoch: w.epoch, Time: w.stamp}, size)
	fill(body)
	w.batch.Seal()
	w.views.stamp = w.stamp
	return pos
}

// tick reads the clocks for this turn.
func (w *writer) tick() {
	w.now = time.Now()
	w.lease = w.e.clock.Lease()
	w.stamp = max(w.stamp, w.views.stamp, w.e.clock.Wall())
}

// write is the writer goroutine.
func (e *Engine) write() {
	defer close(e.done)
	w := &e.writer
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for w.failed == nil && !w.finished() {
		if len(w.backlog)+len(w.later) == 0 {
			w.arm(timer)
			select {
			case <-e.inbox.wake:
			case <-timer.C:
			}
		}
		w.turn()
	}
}

// arm sets the timer to the next thing that time alone brings about: an idle broker has none.
func (w *writer) arm(timer *time.Timer) {
	at, ok := w.nextEvent()
	if !ok {
		timer.Stop()
		return
	}
	timer.Reset(time.Duration(max(at-w.e.clock.Lease(), 0)) * time.Millisecond)
}

// unhurried is how exactly the end of a lease is noticed when nobody waits for it, ms.
const unhurried = 1000

// nextEvent is the earliest of: a lease that ends, a message that is to be moved to a dead-letter topic,
// a pull that has waited long enough, a session that ends, a half message that is due, a message whose time
// comes, a checkpoint that is due. On the lease clock, ms.
func (w *writer) nextEvent() (int64, bool) {
	at, ok := int64(0), false
	earlier := func(t int64, is bool) {
		if is && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if t, is := w.views.pop.NextDue(); is {
		if w.ready.armed+len(w.full.waits) == 0 { // nobody waits: what dies then may do so a little later
			t = (t + unhurried - 1) / unhurried * unhurried
		}
		earlier(t, true)
	}
	earlier(w.pulls.next())
	earlier(w.nextBurial())
	earlier(w.nextDelivery())
	earlier(w.live.next())
	earlier(w.nextCheck())
	earlier(w.lite.next(w))
	earlier(w.nextSave())
	return at, ok
}

// turn runs what waits, writes one batch, and answers what can be answered.
func (w *writer) turn() {
	fresh := len(w.backlog) == 0
	if fresh {
		w.backlog = w.e.inbox.take(w.spare)
	}
	w.tick() // behind that: a lease from here on is as long as was asked for
	w.e.counts.Turns.Add(1)
	w.batch.Reset()
	w.judges.here = judgeTurn
	w.endSessions()
	w.lookAtHalves()
	w.endLites()
	w.views.pop.Advance(w.lease, w.due)
	w.pulls.expire()
	w.deliverDue()
	if fresh {
		w.backlog = append(w.backlog, w.later...)
		w.spare = w.backlog[:0]
		clear(w.later)
		w.later = w.later[:0]
	}
	ran := w.runSome()
	w.flushAcks()
	w.flushEndings()
	w.flushOffsets()
	if w.bug != nil {
		w.fail(w.bug, ran)
		return
	}
	if w.batch.Size() > 0 {
		if err := w.e.log.Write(w.batch); err != nil {
			w.fail(err, ran)
			return
		}
		w.e.grown()
		if f := w.e.o.Events.Wrote; f != nil {
			f(w.batch.Size())
		}
	}
	if w.onlySync(ran) {
		_ = w.e.log.Sync() // a failure is the log's last word: answer sees it
	}
	w.topics.publish()
	w.answer(ran)
	w.e.inbox.free(w.off.n, w.off.bytes)
	w.off = answered{}
	if w.failed == nil {
		w.bury()
		w.ready.fire(w)
		w.takeState()
		w.saveIfDue()
		w.e.spaces.costs.turned(&w.views)
	}
	if w.closing != nil {
		w.shutDown()
	}
}

// runSome runs requests until the batch is large enough, and returns those that ran.
func (w *writer) runSome() []op {
	n := 0
	for n < len(w.backlog) && w.bug == nil && (n == 0 || w.batch.Size() < w.e.o.TurnBytes) {
		w.backlog[n].run(w)
		n++
	}
	ran := w.backlog[:n]
	w.backlog = w.backlog[n:]
	return ran
}

// onlySync tells whether every reply of this turn waits for fdatasync. Then the writer syncs by itself:
// nobody waits for it that would not wait for the disk as well, what arrives meanwhile is the next
// batch, and two hand-offs to the syncer are saved.
func (w *writer) onlySync(ran []op) bool {
	waits := false
	if w.e.o.Replicas != nil {
		return false // the others write meanwhile
	}
	for _, o := range ran {
		s := o.waits()
		if s.end > 0 && !s.sync {
			return false
		}
		waits = waits || s.end > 0
	}
	return waits && len(w.backlog) == 0
}

// answer finishes requests whose records are where their replies need them.
func (w *writer) answer(ran []op) {
	sync := false
	for i, o := range ran {
		ran[i] = nil
		switch s := o.waits(); {
		case s.again:
			s.again = false
			w.later = append(w.later, o)
		case s.parked:
			s.parked = false
		case s.aside != nil:
			f := s.aside
			s.aside = nil
			f(w)
		case s.end > 0 && (s.sync || w.e.o.Replicas != nil):
			w.synced = append(w.synced, o)
		default:
			w.reply(o)
		}
	}
	durable, shown := w.e.log.Durable(), w.e.shown(true)
	n := 0
	for n < len(w.synced) && w.synced[n].waits().end <= shown {
		w.reply(w.synced[n])
		w.synced[n] = nil
		n++
	}
	w.synced = w.synced[n:]
	if len(w.synced) == 0 {
		w.synced = nil
	}
	sync = (len(w.synced) > 0 || w.topics.waitSync()) && (w.e.o.Replicas == nil || !w.e.o.Replicas.Memory())
	switch behind := int64(w.e.log.Written() - durable); {
	case behind == 0: // what waits, waits for other replicas
	case sync || behind >= w.e.o.FlushBytes:
		w.e.syncer.soon()
	default:
		w.e.syncer.eventually()
	}
	if err := w.e.log.Err(); err != nil {
		w.fail(err, nil)
	}
}

// answered counts requests that the inbox need not count any more.
type answered struct {
	n     int
	bytes int64
}

// reply answers a request with what it found.
func (w *writer) reply(o op) {
	if held := o.waits().held; held > 0 {
		w.off.n++
		w.off.bytes += held
	}
	o.finish(w, nil)
}
