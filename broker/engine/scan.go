package engine

import (
	"slices"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// scan looks through the queues of a topic for what one receive may have, starting at another queue
// each time: messages that came back first, then new ones.
type scan struct {
	w     *writer
	t     *topicState
	g     *group.Definition
	req   *brokerapi.PopRequest
	want  []uint64 // hashes of the tags asked for
	room  int      // messages that may be leased
	left  int      // entries that the filter or the order may still let pass
	judge *judge   // of an SQL filter, else nil
	// ordered says that of each message group one delivery is out at a time
	ordered bool

	found
	size  int64
	full  bool // a message was left out because of its size
	taken int  // of got, by earlier queues

	key     queue.Key
	entries [scanBuffer]queue.Entry // of key, from base
	base    record.QueueOffset
	n       int
	lites   []*liteSub // that were looked at
	err     error      // of the consume queue: what it hides from the group must not go unnoticed
}

// found is what a scan has found: sections of a lease, their items one after the other, and the messages.
// The writer keeps one to use its memory again.
type found struct {
	sections []record.PopSection
	items    []record.PopItem
	got      []leased
}

// empty returns f without contents.
func (f found) empty() found {
	clear(f.sections)
	return found{sections: f.sections[:0], items: f.items[:0], got: f.got[:0]}
}

// scanBuffer is how many queue entries are read at a time.
const scanBuffer = 32

func (s *scan) run(u *sub, c *liteClient) {
	s.ordered = s.g.InOrder()
	for _, tag := range s.req.Filter.Tags {
		s.want = append(s.want, brokerapi.HashTag([]byte(tag)))
	}
	if c != nil {
		s.lite(c)
		return
	}
	o := s.orderFor(u)
	for i := 0; i < o.n && len(s.got) < s.limit() && s.left > 0; i++ {
		s.queue(o.at(i))
	}
}

// popMax bounds the messages of one lease, each of which takes at most itemBytes in its record.
const (
	popMax    = 1024
	itemBytes = 24
)

func (s *scan) limit() int { return min(popLimit(s.req), s.room) }

func popLimit(req *brokerapi.PopRequest) int { return min(max(1, req.Max), popMax) }

// bound is how many bytes the records of one reply may have.
func (s *scan) bound() int64 {
	if s.req.MaxBytes == 0 {
		return popBytesDefault
	}
	return int64(min(s.req.MaxBytes, popBytesMax))
}

func (s *scan) queue(q record.QueueID) {
	w, k := s.w, pop.Key{Group: s.g.ID, Topic: s.t.def.ID, Queue: q}
	started := w.views.pop.Started(k)
	if !started {
		if s.t.queue(q).visible == 0 || s.gathers() {
			return
		}
		at, err := w.beginOf(s.t, s.g, q)
		if err != nil {
			s.err = err
			return
		}
		w.views.pop.Start(k, at)
	}
	s.key, s.n, s.taken = queue.Key{Topic: s.t.def.ID, Queue: q}, 0, len(s.got)
	before, next := len(s.items), w.views.pop.Stats(k).Next
	sec := record.PopSection{Queue: q}
	if s.ordered {
		sec.Next = s.planOrdered(k)
	} else {
		s.items = w.views.pop.Plan(k, s.end(k), s.limit()-len(s.got), s.match, s.items)
	}
	items := s.items[before:]
	if len(items) == 0 && sec.Next <= next {
		if !started {
			// where the group begins is in the log, too
			w.skip(&record.Skip{Topic: k.Topic, Group: k.Group, Queue: q, From: next, To: next})
		}
		return
	}
	slices.SortFunc(s.got[s.taken:], func(a, b leased) int { return int(a.offset - b.offset) })
	i := s.taken
	for _, it := range items {
		if it.Attempt > 0 {
			s.got[i].attempt = it.Attempt
			i++
		}
	}
	sec.Items = items
	s.sections = append(s.sections, sec)
}

// end is the offset at which new messages of a queue end.
func (s *scan) end(k pop.Key) record.QueueOffset {
	end := s.t.queue(k.Queue).visible
	if s.w.tableFull() {
		end = min(end, s.w.views.pop.Stats(k).Next)
	}
	return end
}

// planOrdered is Plan for an ordered group. What it passes over counts as entries that the filter let pass.
func (s *scan) planOrdered(k pop.Key) record.QueueOffset {
	before, from := len(s.items), s.w.views.pop.Stats(k).Next
	items, next, err := s.w.views.pop.PlanOrdered(k, s.end(k), s.limit()-len(s.got), s.left, s.match, s.items)
	if err != nil {
		s.err = err
	}
	s.items = items
	passed := int(next - from)
	for _, it := range items[before:] {
		if it.Offset >= from {
			passed--
		}
	}
	s.left = max(0, s.left-passed)
	if !s.gathers() {
		s.w.e.counts.Passed.Add(int64(passed))
	}
	return next
}

// match judges one message by its queue entry. Tags are compared by hash here and by text when the
// message is read.
func (s *scan) match(off record.QueueOffset) pop.Verdict {
	e, ok := s.entry(off)
	if !ok {
		return pop.Stop
	}
	switch s.fits(off, e) {
	case pop.Stop:
		return pop.Stop
	case pop.Skip:
		if s.left <= 0 {
			return pop.Stop
		}
		s.left--
		if !s.gathers() {
			s.w.e.counts.Skipped.Add(1)
		}
		return pop.Skip
	}
	if len(s.got) > 0 && s.size+int64(e.Size) > s.bound() {
		s.full = true
		return pop.Stop
	}
	s.size += int64(e.Size)
	s.got = append(s.got, leased{queue: s.key.Queue, offset: off, pos: e.Pos, size: e.Size, at: e.Time})
	return pop.Take
}

// gathers tells that the scan only finds out which messages are to be judged beside the writer.
func (s *scan) gathers() bool { return s.judge != nil && s.judge.gather }

// fits judges a message by the filter: Stop if that is not known yet.
func (s *scan) fits(off record.QueueOffset, e *queue.Entry) pop.Verdict {
	switch {
	case s.w.movedOn(s.key, off), s.w.isHole(e.Pos):
		return pop.Skip
	case s.judge != nil:
		return s.judge.judge(s.w, s.key.Queue, off, e)
	case s.req.Filter.Kind == brokerapi.FilterTags && !slices.Contains(s.want, e.TagHash):
		return pop.Skip
	}
	return pop.Take
}

// entry reads the queue entry at off, with those that follow it.
func (s *scan) entry(off record.QueueOffset) (*queue.Entry, bool) {
	if off < s.base || off >= s.base+record.QueueOffset(s.n) || s.n == 0 {
		n, err := s.w.views.entries(s.key, off, s.entries[:])
		if err == nil && n == 0 {
			err = mqerr.New(mqerr.Corrupt, "consume queue of topic %s queue %d ends before offset %d, which was assigned", s.t.def.Name, s.key.Queue, off)
		}
		if err != nil {
			s.err = err
			return nil, false
		}
		s.base, s.n = off, n
	}
	return &s.entries[off-s.base], true
}

func (s *scan) skipped() bool { return len(s.sections) > 0 && len(s.got) == 0 }

// skip records what the filter let pass when there is no lease to say it in: new messages as ranges,
// those that came back one by one.
func (s *scan) skip() {
	if s.ordered {
		s.w.putLease(&record.PopCk{Topic: s.t.def.ID, Group: s.g.ID, Until: s.w.lease, Ordered: true, Sections: s.sections})
		return
	}
	var back []record.PopSection
	for _, sec := range s.sections {
		next := s.w.views.pop.Stats(pop.Key{Group: s.g.ID, Topic: s.t.def.ID, Queue: sec.Queue}).Next
		fresh := slices.IndexFunc(sec.Items, func(it record.PopItem) bool { return it.Offset >= next })
		if fresh < 0 {
			fresh = len(sec.Items)
		}
		if fresh > 0 {
			back = append(back, record.PopSection{Queue: sec.Queue, Items: sec.Items[:fresh]})
		}
		if fresh < len(sec.Items) { // new messages are looked at without gaps
			s.w.skip(&record.Skip{
				Topic: s.t.def.ID, Group: s.g.ID, Queue: sec.Queue, From: sec.Items[fresh].Offset, To: sec.Items[len(sec.Items)-1].Offset + 1,
			})
		}
	}
	if len(back) > 0 {
		s.w.putLease(&record.PopCk{Topic: s.t.def.ID, Group: s.g.ID, Until: s.w.lease, Sections: back})
	}
}

// skip records that a group lets a range of offsets pass.
func (w *writer) skip(k *record.Skip) {
	w.put(record.TypeSkip, record.SkipSize(k), func(body []byte) { record.PutSkip(body, k) })
	if err := w.views.pop.ApplySkip(k); err != nil {
		w.broken(err)
	}
}
