package pop

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run only this seed of the random test")
	seedsFlag = flag.Int("seeds", 160/raceSlows, "how many seeds the random test runs")
	stepsFlag = flag.Int("steps", 300, "how many steps it takes with each")
)

// TestRandom runs random operations against the table and against the model, and compares them after
// each step. Acks reach the log later than the table, as the broker coalesces them.
func TestRandom(t *testing.T) {
	count := map[string]int{}
	for i := range *seedsFlag {
		seed := uint64(i + 1)
		if *seedFlag != 0 {
			seed = *seedFlag
		}
		r := newRun(t, seed)
		for n := range *stepsFlag {
			op := r.step()
			count[op]++
			for len(r.opOf) < len(r.log) {
				r.opOf = append(r.opOf, op)
			}
			r.compare(n%4 == 0)
			if t.Failed() {
				t.Fatalf("seed %d, step %d (%s): run again with -seed %d", seed, n, op, seed)
			}
		}
		r.flush()
		r.replay("at the end")
		if seed%4 == 0 {
			r.holes()
		}
		if t.Failed() {
			t.Fatalf("seed %d: run again with -seed %d", seed, seed)
		}
		if *seedFlag != 0 {
			break
		}
	}
	t.Logf("operations: %v", count)
	if *seedFlag == 0 {
		for _, op := range []string{"lease", "again", "ack", "change", "skip", "session end", "advance", "restart", "misfit", "drop", "reset", "trim", "bury", "order", "lease in order"} {
			if count[op] < *seedsFlag {
				t.Errorf("only %d times %q", count[op], op)
			}
		}
	}
}

// modelOptions begin with every group unordered.
var modelOptions = Options{Dead: modelDead, Groups: modelGroups}

type run struct {
	t          *testing.T
	rng        *rand.Rand
	table      *Table
	model      *model
	end        map[Key]int64
	log        []func(*Table) error
	acks       []func(*Table) error // done in the table, not in the log yet
	mid        []byte               // state after the first midAt records
	midAt      int
	midOrdered map[record.GroupID]bool
	groups     map[*Table]map[record.GroupID]bool // which are ordered, as of the table's place in the log
	pos        record.Pos
	clients    []string
	ids        int
	next       record.ClientNum
	dropped    int // topics
	taken      []Dying
	opOf       []string // of each record in the log, the step that put it there
}

func newRun(t *testing.T, seed uint64) *run {
	r := &run{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), model: newModel(), groups: map[*Table]map[record.GroupID]bool{},
		end: map[Key]int64{}, clients: []string{"a", "b", "c"}, next: 1,
	}
	r.table = r.empty(map[record.GroupID]bool{})
	r.midOrdered = map[record.GroupID]bool{}
	r.mid = r.table.Encode(nil)
	return r
}

// empty is a table that knows groups of its own as of its place in the log.
func (r *run) empty(ordered map[record.GroupID]bool) *Table {
	own := maps.Clone(ordered)
	o := modelOptions
	o.Ordered = func(g record.GroupID) bool { return own[g] }
	t := New(o)
	r.groups[t] = own
	return t
}

// order changes a group between ordered and not.
func (r *run) order() string {
	g := r.key().Group
	is := !r.model.ordered[g]
	r.model.ordered[g] = is
	r.apply(func(t *Table) error {
		r.groups[t][g] = is
		return t.SetOrdered(g, is)
	})
	return "order"
}

func (r *run) key() Key {
	return Key{
		Group: record.GroupID(1 + r.rng.IntN(2)),
		Topic: record.TopicID(1 + r.dropped + r.rng.IntN(2)),
		Queue: record.QueueID(r.rng.IntN(2)),
	}
}

// span is a number of ms of any size.
func (r *run) span() int64 { return r.rng.Int64N(int64(1) << r.rng.IntN(22)) }

// apply takes a record into the table and the log.
func (r *run) apply(rec func(*Table) error) {
	if err := rec(r.table); err != nil {
		r.t.Errorf("a record that fits: %v", err)
	}
	r.log = append(r.log, rec)
	if r.rng.IntN(8) == 0 {
		r.flush()
	}
}

// flush brings waiting acks into the log.
func (r *run) flush() {
	r.log = append(r.log, r.acks...)
	r.acks = nil
}

func (r *run) step() string {
	switch n := r.rng.IntN(100); {
	case n < 35:
		return r.lease()
	case n < 57:
		return r.ack()
	case n < 60:
		return r.bury()
	case n < 70:
		return r.change()
	case n < 85:
		r.advance(r.span())
		return "advance"
	case n < 88:
		return r.skip()
	case n < 91:
		return r.sessionEnd()
	case n < 94:
		r.again()
		return "again"
	case n < 95:
		return r.order()
	case n < 96:
		r.misfit()
		return "misfit"
	case n < 97:
		return r.drop()
	case n < 98:
		r.reset()
		return "reset"
	case n < 99:
		return r.trim()
	default:
		r.restart()
		return "restart"
	}
}

func (r *run) advance(by int64) {
	before := map[Key]int64{}
	for k := range r.table.byKey {
		before[k] = r.table.Stats(k).Ready
	}
	r.table.Advance(r.model.now+by, func(k Key, n int) { before[k] += int64(n) })
	r.model.advance(r.model.now + by)
	for k, n := range before {
		if now := r.table.Stats(k).Ready; now != n {
			r.t.Errorf("%v: %d ready, but %d were before or told", k, now, n)
		}
	}
}

func (r *run) lease() string {
	k := r.key()
	ck := record.PopCk{Topic: k.Topic, Group: k.Group, Until: r.model.now + r.span(), Ordered: r.model.ordered[k.Group]}
	if r.rng.IntN(10) == 0 {
		ck.Until = max(0, r.model.now-r.span())
	}
	limit := 1 + r.rng.IntN(40)
	salt := r.rng.Int64()
	style := r.rng.IntN(4)
	match := func(off record.QueueOffset) Verdict {
		switch v := (int64(off)*7919 + salt) >> 3 & 63; {
		case style == 0 && v == 0:
			return Stop
		case style <= 1 && v < 8:
			return Skip
		}
		return Take
	}
	for q := range record.QueueID(2) {
		k.Queue = q
		if r.rng.IntN(3) == 0 {
			continue
		}
		r.end[k] += r.rng.Int64N(30)
		at := int64(0)
		if mq := r.model.queues[k]; mq == nil {
			at = r.rng.Int64N(100)
		}
		r.table.Start(k, record.QueueOffset(at))
		started := r.model.queues[k] != nil
		mq := r.model.queue(k, r.table.byKey[k].next)
		r.end[k] = max(r.end[k], mq.next)
		if ck.Ordered {
			sec := r.planOrdered(k, limit, match)
			if len(sec.Items) > 0 || int64(sec.Next) > mq.next {
				ck.Sections = append(ck.Sections, sec)
			} else if !started {
				delete(r.model.queues, k)
			}
			continue
		}
		got := r.table.Plan(k, record.QueueOffset(r.end[k]), limit, match, nil)
		want := r.model.plan(k, r.end[k], limit, match)
		if !slices.Equal(got, want) {
			r.t.Errorf("plan of %v: %v, want %v", k, got, want)
		}
		r.mayGoOut(mq, got)
		if len(mq.passed) == 0 && r.rng.IntN(4) == 0 { // a broker may leave what came back for another time
			got = slices.DeleteFunc(got, func(it record.PopItem) bool { return int64(it.Offset) < mq.next && r.rng.IntN(2) == 0 })
		}
		if len(got) > 0 {
			ck.Sections = append(ck.Sections, record.PopSection{Queue: q, Items: got})
		} else if !started {
			delete(r.model.queues, k) // no record says that it exists
		}
	}
	if len(ck.Sections) == 0 {
		return "empty"
	}
	r.client(&ck)
	r.pos += 8 * record.Pos(1+r.rng.IntN(100))
	pos := r.pos
	r.model.lease(pos, &ck)
	r.apply(func(t *Table) error { return t.ApplyLease(pos, &ck) })
	if ck.Ordered {
		return "lease in order"
	}
	return "lease"
}

// planOrdered plans a section of a lease in order.
func (r *run) planOrdered(k Key, limit int, match func(record.QueueOffset) Verdict) record.PopSection {
	look := r.rng.IntN(1 << r.rng.IntN(8))
	got, next, err := r.table.PlanOrdered(k, record.QueueOffset(r.end[k]), limit, look, match, nil)
	if err != nil {
		r.t.Error(err)
	}
	want, end := r.model.planOrdered(k, r.end[k], limit, look, match)
	if !slices.Equal(got, want) || int64(next) != end {
		r.t.Errorf("plan of %v in order: %v up to %d, want %v up to %d", k, got, next, want, end)
	}
	q := r.model.queues[k]
	r.mayGoOut(q, got)
	r.inOrder(k, q, got)
	return record.PopSection{Queue: k.Queue, Items: got, Next: next}
}

// inOrder asserts that of each message group the oldest un-done messages go out, without a gap, and none
// while another one is out.
func (r *run) inOrder(k Key, q *modelQueue, items []record.PopItem) {
	out := map[uint64]int64{} // the youngest that goes out
	in := map[int64]bool{}
	for _, it := range items {
		in[int64(it.Offset)] = true
		if it.Attempt > 0 {
			out[modelGroup(k, int64(it.Offset))] = int64(it.Offset)
		}
	}
	below := q.below()
	for off := q.next; off < r.end[k]; off++ {
		below = append(below, off)
	}
	for _, off := range below {
		hash := modelGroup(k, off)
		last, is := out[hash]
		g := q.undone[off]
		if is && g != nil && r.model.end(g) > r.model.now {
			r.t.Errorf("%d of %v goes out at %d while %d of its group is leased until %d", last, k, r.model.now, off, r.model.end(g))
		}
		if is && off < last && !in[off] {
			r.t.Errorf("%d of %v goes out before %d of its group", last, k, off)
		}
	}
}

// mayGoOut asserts that nothing is handed out that is done or under a lease that has not ended.
func (r *run) mayGoOut(q *modelQueue, items []record.PopItem) {
	for _, it := range items {
		g := q.undone[int64(it.Offset)]
		if g == nil && !q.passed[int64(it.Offset)] && int64(it.Offset) < q.next {
			r.t.Errorf("offset %d goes out and is done", it.Offset)
		}
		if g != nil && r.model.end(g) > r.model.now {
			r.t.Errorf("offset %d goes out at %d and is leased until %d", it.Offset, r.model.now, r.model.end(g))
		}
	}
}

// client sets the client of a lease: none, a known one, a new one.
func (r *run) client(ck *record.PopCk) {
	if r.rng.IntN(4) == 0 {
		return
	}
	name := r.clients[r.rng.IntN(len(r.clients))]
	num, known := r.table.Client([]byte(name))
	ck.Client, ck.Session = num, r.rng.IntN(2) == 0
	if !known {
		ck.Client, ck.ClientName = r.table.NewClientNum(), []byte(name)
		if ck.Client != r.next {
			r.t.Errorf("the next client number is %d, want %d", ck.Client, r.next)
		}
		r.next++
	}
	if r.rng.IntN(2) == 0 {
		r.ids++
		ck.AttemptID = fmt.Appendf(nil, "%s%d", name, r.ids%200)
	}
}

// any returns an offset that was handed out, and its message if it is not done.
func (r *run) any() (Key, int64, *modelMessage) {
	keys := r.model.keys()
	if len(keys) == 0 {
		return Key{}, -1, nil
	}
	k := keys[r.rng.IntN(len(keys))]
	q := r.model.queues[k]
	if all := q.offsets(); len(all) > 0 && r.rng.IntN(8) > 0 {
		off := all[r.rng.IntN(min(len(all), 1<<r.rng.IntN(10)))]
		return k, off, q.undone[off]
	}
	if q.next == 0 {
		return k, -1, nil
	}
	off := r.rng.Int64N(q.next)
	return k, off, q.undone[off]
}

func (r *run) ack() string {
	a := record.PopAck{}
	for range 1 + r.rng.IntN(20) {
		k, off, _ := r.any()
		if off < 0 || r.model.queues[k].passed[off] {
			continue
		}
		r.model.ack(k, off)
		a.Sections = append(a.Sections, record.AckSection{Topic: k.Topic, Group: k.Group, Queue: k.Queue, Offsets: []record.QueueOffset{record.QueueOffset(off)}})
	}
	rec := func(t *Table) error { return t.ApplyAck(&a) }
	if err := rec(r.table); err != nil {
		r.t.Errorf("an ack that fits: %v", err)
	}
	r.acks = append(r.acks, rec)
	return "ack"
}

func (r *run) change() string {
	k, _, _ := r.any()
	c := record.PopChange{Topic: k.Topic, Group: k.Group, Until: max(0, r.model.now+r.span()-r.span())}
	for range 1 + r.rng.IntN(4) {
		if q, off, g := r.any(); g != nil && q.Topic == k.Topic && q.Group == k.Group {
			keep := r.rng.IntN(2) == 0
			c.Changes = append(c.Changes, record.Change{Queue: q.Queue, Offset: record.QueueOffset(off), Lease: g.lease, Keep: keep})
			r.model.change(q, off, c.Until, keep)
		}
	}
	if len(c.Changes) == 0 {
		return "empty"
	}
	r.apply(func(t *Table) error { return t.ApplyChange(&c) })
	return "change"
}

func (r *run) skip() string {
	k := r.key()
	s := record.Skip{Topic: k.Topic, Group: k.Group, Queue: k.Queue}
	if q := r.table.byKey[k]; q != nil {
		s.From = record.QueueOffset(q.next)
	}
	s.To = s.From + record.QueueOffset(r.span())
	q := r.model.queue(k, int64(s.From))
	q.next = max(q.next, int64(s.To))
	r.apply(func(t *Table) error { return t.ApplySkip(&s) })
	return "skip"
}

func (r *run) sessionEnd() string {
	num, known := r.table.Client([]byte(r.clients[r.rng.IntN(len(r.clients))]))
	if !known {
		return "empty"
	}
	s := record.SessionEnd{Client: num, Until: r.model.now + r.span()}
	r.model.sessionEnd(num, s.Until)
	r.apply(func(t *Table) error { return t.ApplySessionEnd(&s) })
	return "session end"
}

func (r *run) again() {
	for range 10 {
		k := r.key()
		num, _ := r.table.Client([]byte(r.clients[r.rng.IntN(len(r.clients))]))
		id := "never used"
		if c := r.model.clients[num]; c != nil && len(c.tries) > 0 {
			y := c.tries[len(c.tries)-1-r.rng.IntN(min(len(c.tries), 8))]
			id = y.id
			if r.rng.IntN(4) > 0 {
				k.Topic, k.Group = y.topic, y.group
			}
		}
		got, want := r.table.Again(r.model.now, num, k.Topic, k.Group, []byte(id)), r.model.again(num, k, id)
		if !slices.Equal(got, want) {
			r.t.Errorf("again %q: %v, want %v", id, got, want)
		}
	}
}

// misfit offers records that do not fit: each is an error and changes nothing.
func (r *run) misfit() {
	before := r.table.Encode(nil)
	k, off, g := r.any()
	if off < 0 || r.model.queues[k].passed[off] {
		return
	}
	o, next := record.QueueOffset(off), record.QueueOffset(r.model.queues[k].next)
	lease := func(items ...record.PopItem) error {
		return r.table.ApplyLease(r.pos+8, &record.PopCk{
			Topic: k.Topic, Group: k.Group, ClientName: []byte("new"), Client: r.next,
			Sections: []record.PopSection{{Queue: 7, Items: []record.PopItem{{Offset: 5, Attempt: 1, Prev: -1}}}, {Queue: k.Queue, Items: items}},
		})
	}
	errs := map[string]error{
		"gap":             lease(record.PopItem{Offset: next + 1, Attempt: 1, Prev: -1}),
		"new with past":   lease(record.PopItem{Offset: next, Attempt: 1, Prev: 8}),
		"new attempt 2":   lease(record.PopItem{Offset: next, Attempt: 2, Prev: -1}),
		"ack of new":      r.table.ApplyAck(&record.PopAck{Sections: []record.AckSection{{Topic: k.Topic, Group: k.Group, Queue: k.Queue, Offsets: []record.QueueOffset{o, next}}}}),
		"session of none": r.table.ApplySessionEnd(&record.SessionEnd{Client: r.next}),
		"skip of a gap":   r.table.ApplySkip(&record.Skip{Topic: k.Topic, Group: k.Group, Queue: k.Queue, From: next + 1, To: next + 2}),
	}
	if g == nil {
		errs["done"] = lease(record.PopItem{Offset: o, Attempt: 1, Prev: -1})
		errs["change of done"] = r.table.ApplyChange(&record.PopChange{Topic: k.Topic, Group: k.Group, Changes: []record.Change{{Queue: k.Queue, Offset: o}}})
	} else {
		errs["wrong attempt"] = lease(record.PopItem{Offset: o, Attempt: g.nextAttempt() + 1, Prev: g.lease})
		errs["wrong lease"] = lease(record.PopItem{Offset: o, Attempt: g.nextAttempt(), Prev: g.lease - 8})
		errs["change of another lease"] = r.table.ApplyChange(&record.PopChange{Topic: k.Topic, Group: k.Group, Changes: []record.Change{
			{Queue: k.Queue, Offset: o, Lease: g.lease}, {Queue: k.Queue, Offset: o, Lease: g.lease + 8},
		}})
	}
	for name, err := range errs {
		if !mqerr.Is(err, mqerr.Corrupt) {
			r.t.Errorf("%s: %v", name, err)
		}
	}
	if !bytes.Equal(before, r.table.Encode(nil)) {
		r.t.Errorf("a record that does not fit changed the state")
	}
}

// drop deletes a topic or a group. Acks must not change places with that.
func (r *run) drop() string {
	r.flush()
	k := r.key()
	if r.rng.IntN(2) == 0 {
		r.dropped++
		id := record.TopicID(r.dropped)
		r.apply(func(t *Table) error { t.DropTopic(id); return nil })
		k = Key{Topic: id}
	} else {
		if r.rng.IntN(10) > 0 {
			k.Queue = 3 // most of the time one that has no messages
			k.Group = 9
		}
		r.apply(func(t *Table) error { t.DropGroup(k.Group); return nil })
		k.Topic = 0
	}
	for o := range r.model.queues {
		if o.Topic == k.Topic || k.Topic == 0 && o.Group == k.Group {
			delete(r.model.queues, o)
			delete(r.end, o)
		}
	}
	r.model.sweep()
	return "drop"
}

// reset moves a group in a queue. Acks must not change places with that.
func (r *run) reset() {
	r.flush()
	k := r.key()
	off := r.rng.Int64N(r.end[k] + 2)
	q := r.model.queue(k, off)
	if left, want := r.table.Undone(k, record.QueueOffset(off)), q.undoneFrom(off); left != want {
		r.t.Errorf("%d un-done at or above %d of %v, want %d", left, off, k, want)
	}
	q.next, q.undone, q.passed = off, map[int64]*modelMessage{}, map[int64]bool{}
	r.model.sweep()
	r.apply(func(t *Table) error { return t.ApplyReset(k, record.QueueOffset(off)) })
}

// trim makes a queue begin later for everybody; most of what was handed out stays.
func (r *run) trim() string {
	k := r.key()
	q := r.model.queues[k]
	if q == nil {
		return "trim of nothing"
	}
	r.flush()
	first := r.rng.Int64N(q.next + 3)
	var held []record.QueueOffset
	for _, off := range q.offsets() {
		if off < first && r.rng.IntN(4) > 0 {
			held = append(held, record.QueueOffset(off))
		}
	}
	want := r.model.heldBelow(k, first)
	for _, most := range []int{math.MaxInt, r.rng.IntN(len(want) + 2)} {
		if all := want[:min(most, len(want))]; !slices.Equal(all, r.table.Below(k, record.QueueOffset(first), most, nil)) {
			r.t.Errorf("the first %d below %d of %v are not %v", most, first, k, all)
		}
	}
	lost := r.model.trim(k, first, held)
	told := func(fn func(func(from, to record.QueueOffset))) (n int64) {
		fn(func(from, to record.QueueOffset) { n += int64(to - from) })
		return n
	}
	if n := told(func(f func(from, to record.QueueOffset)) { r.table.Unread(k, record.QueueOffset(first), f) }); n != lost {
		r.t.Errorf("%v has %d unread below %d, want %d", k, n, first, lost)
	}
	if off, known := r.table.OldestUnread(k); !known || (int64(off) < first) != (lost > 0) {
		r.t.Errorf("%v: oldest unread %d (%v), %d below %d", k, off, known, lost, first)
	}
	r.apply(func(t *Table) error {
		if n := told(func(f func(from, to record.QueueOffset)) { t.Trim(k, record.QueueOffset(first), held, f) }); n != lost {
			r.t.Errorf("a trim of %v to %d loses %d, want %d", k, first, n, lost)
		}
		return nil
	})
	return "trim"
}

// restart goes on with the state as decoded, or as rebuilt from the log.
func (r *run) restart() {
	r.flush()
	var t *Table
	if r.rng.IntN(2) == 0 {
		t = r.decode(r.table.Encode(nil))
		r.mid, r.midAt, r.midOrdered = r.table.Encode(nil), len(r.log), maps.Clone(r.model.ordered)
	} else {
		t = r.replay("at a restart")
	}
	r.table, r.taken = t, nil
	r.groups = map[*Table]map[record.GroupID]bool{t: r.groups[t]}
	for _, q := range r.model.queues {
		for _, g := range q.undone {
			g.ready, g.held = false, false
		}
	}
	r.advance(0)
}

func (r *run) decode(b []byte) *Table {
	t := r.empty(r.model.ordered)
	if err := t.Decode(b); err != nil {
		r.t.Errorf("decode: %v", err)
	}
	if !bytes.Equal(b, t.Encode(nil)) {
		r.t.Errorf("the decoded state has other bytes")
	}
	return t
}

// replay rebuilds the table from the whole log, and from the state in the middle and the rest; both
// must be the state that the table has, byte for byte.
func (r *run) replay(when string) *Table {
	whole, rest := r.empty(map[record.GroupID]bool{}), r.empty(r.midOrdered)
	if err := rest.Decode(r.mid); err != nil {
		r.t.Errorf("decode: %v", err)
	}
	for i, rec := range r.log {
		if err := rec(whole); err != nil {
			r.t.Errorf("%s: replay: %v", when, err)
		}
		if i >= r.midAt {
			if err := rec(rest); err != nil {
				r.t.Errorf("%s: replay of the rest: %v", when, err)
			}
		}
	}
	b := r.table.Encode(nil)
	if !bytes.Equal(b, whole.Encode(nil)) {
		r.t.Errorf("%s: the replayed state has other bytes", when)
	}
	if !bytes.Equal(b, rest.Encode(nil)) {
		r.t.Errorf("%s: the state from the middle and the rest of the log has other bytes", when)
	}
	return whole
}

// compare compares the table with the model; thorough looks at how it is built, too.
func (r *run) compare(thorough bool) {
	if thorough {
		if fault := r.table.check(); fault != "" {
			r.t.Errorf("invariant: %s", fault)
			return
		}
	}
	for _, k := range r.model.keys() {
		got, want := r.table.Stats(k), r.model.stats(k)
		if got != want {
			r.t.Errorf("%v: %+v, want %+v", k, got, want)
		}
		if got.Floor > got.Next {
			r.t.Errorf("%v: floor %d, next %d", k, got.Floor, got.Next)
		}
	}
	k, off, g := r.any()
	if off < 0 {
		return
	}
	if r.model.queues[k].passed[off] {
		if s := r.table.Check(k, record.QueueOffset(off), 8); s != Stale {
			r.t.Errorf("%d of %v was never handed out, but %d", off, k, s)
		}
		return
	}
	state := func(lease record.Pos) State { return r.table.Check(k, record.QueueOffset(off), lease) }
	if g == nil {
		if s := state(8); s != Done {
			r.t.Errorf("%d of %v is done, but %d", off, k, s)
		}
	} else if state(g.lease) != Current || state(g.lease+8) != Stale {
		r.t.Errorf("%d of %v: lease %d is not current, or another one is", off, k, g.lease)
	}
	if at, ok := r.table.NextDue(); ok && at > r.firstEnd() {
		r.t.Errorf("next due at %d, but a lease ends at %d", at, r.firstEnd())
	}
}

// firstEnd is when the first lease ends.
func (r *run) firstEnd() int64 {
	first := int64(untilMax)
	for _, q := range r.model.queues {
		for _, g := range q.undone {
			if !g.ready && !g.held {
				first = min(first, r.model.end(g))
			}
		}
	}
	return max(first, r.model.now)
}
