package engine

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// pullOp reads a queue from an offset on. It looks at a bounded number of entries in one turn and comes
// back for more; at the end of the queue it waits in pulls.
type pullOp struct {
	waiter
	from *session
	req  *brokerapi.PullRequest
	done func(*brokerapi.PullReply, error)
	err  error

	begun    bool
	until    int64              // how long it waits for a message, ms of the lease clock
	limit    int64              // how long it may look for one that fits
	want     []uint64           // hashes of the tags asked for
	at       record.QueueOffset // of the next entry to look at
	min, max record.QueueOffset
	got      []leased // may fit: their bytes are looked at when they are read
	givenUp  string   // see readable

	heapAt, seat int // in pulls while it is there
}

// pullMax bounds the messages of one reply.
const pullMax = 1024

func (o *pullOp) bytes() int {
	n := 256 + len(o.req.Filter.SQL)
	for _, tag := range o.req.Filter.Tags {
		n += 16 + len(tag)
	}
	return n
}

func (o *pullOp) run(w *writer) {
	if o.err != nil {
		return
	}
	goesOn := o.begun
	t, err := o.begin(w)
	if err == nil && goesOn && o.from != nil && o.from.closed {
		err = errGone
	}
	if err != nil {
		o.err = err
		return
	}
	o.givenUp = t.givenUp()
	end := t.queues[o.req.Queue].visible
	o.min, _ = w.views.queues.Bounds(o.key())
	o.max, o.at = end, max(o.at, o.min)
	if goesOn && w.lease >= o.limit {
		return // what was looked at need not be looked at again: the answer says where to go on
	}
	if err := o.look(w, end); err != nil {
		w.queueDamaged(t, err)
		if len(o.got) == 0 {
			o.err = err
			return
		}
	}
	switch {
	case len(o.got) > 0:
	case o.at < end:
		o.again = w.lease < o.limit // more entries to look at: others first
	case w.lease < o.until && !w.pulls.over:
		o.err = w.pulls.park(o)
	}
}

// begin finds the topic, and checks the rest of the request when it comes for the first time.
func (o *pullOp) begin(w *writer) (*topicState, error) {
	if !o.begun {
		if err := w.current(&o.req.Head); err != nil {
			return nil, err
		}
	}
	t, err := w.topicOf(o.req.Topic)
	if err != nil {
		return nil, err
	}
	if o.req.Group != 0 && w.views.groups.Get(record.GroupID(o.req.Group)) == nil {
		return nil, mqerr.New(mqerr.GroupNotFound, "group %d does not exist here", o.req.Group)
	}
	if o.begun {
		return t, t.has(o.req.Queue)
	}
	if err := t.holds(o.req.Queue, o.req.Offset); err != nil {
		return nil, err
	}
	o.begun, o.at = true, record.QueueOffset(o.req.Offset)
	o.until, o.limit = w.lease+o.req.Wait.Milliseconds(), forever
	if d := o.req.Deadline; !d.IsZero() {
		o.limit = w.lease + d.Sub(w.now).Milliseconds()
		o.until = min(o.until, o.limit)
	}
	for _, tag := range o.req.Filter.Tags {
		o.want = append(o.want, brokerapi.HashTag([]byte(tag)))
	}
	return t, nil
}

// forever is later than any time of the lease clock.
const forever = 1 << 62

func (o *pullOp) key() queue.Key {
	return queue.Key{Topic: record.TopicID(o.req.Topic), Queue: record.QueueID(o.req.Queue)}
}

// candidates is how many messages are read in one go to find one that fits a filter on their properties.
const candidates = 256

// most is how many messages the reply may have.
func (o *pullOp) most() int { return min(max(1, o.req.Max), pullMax) }

// look gathers what may fit below end.
func (o *pullOp) look(w *writer, end record.QueueOffset) error {
	var entries [scanBuffer]queue.Entry
	most := o.most()
	if o.req.Filter.Kind == brokerapi.FilterSQL {
		most = max(most, candidates)
	}
	size, bound := int64(0), replyBytes(o.req.MaxBytes)
	o.got = o.got[:0]
	for left := w.e.o.ScanEntries; o.at < end && left > 0; {
		n, err := w.views.queues.Read(o.key(), o.at, entries[:min(int64(len(entries)), int64(end-o.at), int64(left))])
		if err == nil && n == 0 {
			err = mqerr.New(mqerr.Corrupt, "consume queue %d of topic %d ends before offset %d, which was assigned", o.req.Queue, o.req.Topic, o.at)
		}
		if err != nil {
			return err
		}
		left -= n
		for i := range entries[:n] {
			e := &entries[i]
			if o.mayFit(e) && !w.movedOn(o.key(), o.at) && !w.isHole(e.Pos) {
				if len(o.got) == most || len(o.got) > 0 && size+int64(e.Size) > bound {
					return nil
				}
				size += int64(e.Size)
				o.got = append(o.got, leased{queue: o.key().Queue, offset: o.at, pos: e.Pos, size: e.Size, at: e.Time})
			} else {
				w.e.counts.Skipped.Add(1)
			}
			o.at++
		}
	}
	return nil
}

// mayFit judges a message by its queue entry.
func (o *pullOp) mayFit(e *queue.Entry) bool {
	return o.req.Filter.Kind != brokerapi.FilterTags || slices.Contains(o.want, e.TagHash)
}

// replyBytes is how many bytes the records of one reply may have.
func replyBytes(asked int) int64 {
	if asked <= 0 {
		return popBytesDefault
	}
	return int64(min(asked, popBytesMax))
}

// Pull reads a queue.
func (s *session) Pull(req *brokerapi.PullRequest, done func(*brokerapi.PullReply, error)) {
	if s.gone.Load() {
		done(nil, errGone)
		return
	}
	s.e.submit(&pullOp{from: s, req: req, done: done})
}
