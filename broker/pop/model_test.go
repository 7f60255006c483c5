package pop

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// model is the in-flight table as plainly as it can be said: maps, and a look at everything each time.
type model struct {
	now     int64
	queues  map[Key]*modelQueue
	clients map[record.ClientNum]*modelClient
	ordered map[record.GroupID]bool
}

type modelQueue struct {
	next   int64
	undone map[int64]*modelMessage
	passed map[int64]bool
}

type modelMessage struct {
	lease   record.Pos
	attempt uint16
	until   int64
	keep    bool
	client  record.ClientNum
	ready   bool
	held    bool // dying
}

type modelClient struct {
	name  string
	ended int64 // -1: lives
	tries []modelTry
}

type modelTry struct {
	topic record.TopicID
	group record.GroupID
	id    string
	lease record.Pos
	items []Leased
}

func newModel() *model {
	return &model{queues: map[Key]*modelQueue{}, clients: map[record.ClientNum]*modelClient{}, ordered: map[record.GroupID]bool{}}
}

// modelDead is the Dead of the model and of the tables compared with it.
func modelDead(k Key, attempt uint16) bool { return int(attempt) >= 2+int(k.Group) }

// modelGroup is the message group of a message: few that have many, and many that have few.
func modelGroup(k Key, off int64) uint64 {
	x := uint64(off)*0x9e3779b97f4a7c15 + uint64(k.Topic)
	if x>>60 < 12 {
		return x >> 50 & 3
	}
	return 4 + x>>40&63
}

func modelGroups(k Key, off record.QueueOffset, dst []uint64) (int, error) {
	n := 1 + int(off)%len(dst)
	for i := range n {
		dst[i] = modelGroup(k, int64(off)+int64(i))
	}
	return n, nil
}

func (m *model) queue(k Key, from int64) *modelQueue {
	q := m.queues[k]
	if q == nil {
		q = &modelQueue{next: from, undone: map[int64]*modelMessage{}, passed: map[int64]bool{}}
		m.queues[k] = q
	}
	return q
}

func (m *model) end(g *modelMessage) int64 {
	if c := m.clients[g.client]; c != nil && c.ended >= 0 {
		return min(g.until, c.ended)
	}
	return g.until
}

func (m *model) advance(now int64) {
	m.now = max(m.now, now)
	for k, q := range m.queues {
		for _, g := range q.undone {
			if end := m.end(g); !g.ready && end <= m.now {
				g.held = !g.keep && modelDead(k, g.attempt)
				g.ready = !g.held
			}
		}
	}
}

func (q *modelQueue) offsets() []int64 {
	var all []int64
	for off := range q.undone {
		all = append(all, off)
	}
	slices.Sort(all)
	return all
}

func (q *modelQueue) undoneFrom(off int64) int64 {
	n := int64(0)
	for _, at := range q.below() {
		if at >= off {
			n++
		}
	}
	return n
}

func (m *model) plan(k Key, end int64, limit int, match func(record.QueueOffset) Verdict) []record.PopItem {
	q := m.queues[k]
	var items []record.PopItem
	take := func(off int64, attempt uint16, prev record.Pos) bool {
		if limit <= 0 {
			return false
		}
		switch match(record.QueueOffset(off)) {
		case Stop:
			return false
		case Skip:
			attempt, prev = 0, -1
		case Take:
			limit--
		}
		items = append(items, record.PopItem{Offset: record.QueueOffset(off), Attempt: attempt, Prev: prev})
		return true
	}
	for _, off := range q.offsets() {
		if g := q.undone[off]; g.ready && !take(off, g.nextAttempt(), g.lease) {
			return items
		}
	}
	sorted := func() []record.PopItem {
		slices.SortFunc(items, func(a, b record.PopItem) int { return cmp.Compare(a.Offset, b.Offset) })
		return items
	}
	for _, off := range slices.Sorted(maps.Keys(q.passed)) { // while the group was ordered
		if !take(off, 1, -1) {
			return sorted()
		}
	}
	for off := q.next; off < end && take(off, 1, -1); off++ {
	}
	return sorted()
}

// below are the un-done offsets below next.
func (q *modelQueue) below() []int64 {
	all := slices.AppendSeq(q.offsets(), maps.Keys(q.passed))
	slices.Sort(all)
	return all
}

// modelOrder is the un-done messages of one message group below next.
type modelOrder struct {
	hash uint64
	all  []int64
	free bool // may go out
}

// groups are the message groups with un-done messages below next, by their oldest.
func (q *modelQueue) groups(k Key) []*modelOrder {
	var all []*modelOrder
	by := map[uint64]*modelOrder{}
	for _, off := range q.below() {
		g := q.undone[off]
		hash := modelGroup(k, off)
		o := by[hash]
		if o == nil {
			o = &modelOrder{hash: hash, free: true}
			by[hash] = o
			all = append(all, o)
		}
		o.all = append(o.all, off)
		o.free = o.free && (g == nil || g.ready)
	}
	return all
}

// planOrdered is plan for an ordered queue.
func (m *model) planOrdered(k Key, end int64, limit, look int, match func(record.QueueOffset) Verdict) ([]record.PopItem, int64) {
	q := m.queues[k]
	var items []record.PopItem
	stopped := false
	take := func(off int64) {
		it := record.PopItem{Offset: record.QueueOffset(off), Attempt: 1, Prev: -1}
		if g := q.undone[off]; g != nil {
			it.Attempt, it.Prev = g.nextAttempt(), g.lease
		}
		switch match(it.Offset) {
		case Stop:
			stopped = true
			return
		case Skip:
			it.Attempt, it.Prev = 0, -1
		case Take:
			limit--
		}
		items = append(items, it)
		stopped = limit == 0
	}
	free := map[uint64]bool{}
	known := q.groups(k)
	for _, g := range known {
		free[g.hash] = g.free
		for i := 0; i < len(g.all) && g.free && !stopped; i++ {
			take(g.all[i])
		}
	}
	next := q.next
	for ; next < end && !stopped; next++ {
		hash := modelGroup(k, next)
		if is, met := free[hash]; met && !is {
			if look == 0 {
				break
			}
			look--
			continue
		}
		n := len(items)
		if take(next); len(items) == n {
			break
		}
	}
	slices.SortFunc(items, func(a, b record.PopItem) int { return cmp.Compare(a.Offset, b.Offset) })
	return items, next
}

func (g *modelMessage) nextAttempt() uint16 {
	if g.keep {
		return g.attempt
	}
	return g.attempt + 1
}

func (m *model) lease(pos record.Pos, ck *record.PopCk) {
	if len(ck.ClientName) > 0 {
		m.clients[ck.Client] = &modelClient{name: string(ck.ClientName), ended: -1}
	}
	y := modelTry{ck.Topic, ck.Group, string(ck.AttemptID), pos, nil}
	for _, sec := range ck.Sections {
		k := Key{ck.Group, ck.Topic, sec.Queue}
		if q := m.queues[k]; q != nil && ck.Ordered {
			for off := q.next; off < int64(sec.Next); off++ {
				q.passed[off] = true
			}
			q.next = int64(sec.Next)
		}
		for _, it := range sec.Items {
			q := m.queue(k, int64(it.Offset))
			q.next = max(q.next, int64(it.Offset)+1)
			delete(q.passed, int64(it.Offset))
			if it.Attempt == 0 {
				delete(q.undone, int64(it.Offset))
				continue
			}
			g := &modelMessage{lease: pos, attempt: it.Attempt, until: ck.Until}
			if ck.Session {
				g.client = ck.Client
			}
			q.undone[int64(it.Offset)] = g
			y.items = append(y.items, Leased{sec.Queue, it.Offset, pos, it.Attempt})
		}
	}
	if c := m.clients[ck.Client]; c != nil && y.id != "" {
		c.tries = append(c.tries, y)
		c.tries = c.tries[max(0, len(c.tries)-triesMax):]
	}
	m.sweep()
}

// sweep forgets clients that are gone and hold nothing.
func (m *model) sweep() {
	holds := map[record.ClientNum]bool{}
	for _, q := range m.queues {
		for _, g := range q.undone {
			holds[g.client] = true
		}
	}
	for num, c := range m.clients {
		if c.ended >= 0 && !holds[num] {
			delete(m.clients, num)
		}
	}
}

func (m *model) ack(k Key, off int64) {
	delete(m.queues[k].undone, off)
	m.sweep()
}

func (m *model) change(k Key, off, until int64, keep bool) {
	g := m.queues[k].undone[off]
	*g = modelMessage{lease: g.lease, attempt: g.attempt, until: until, keep: keep}
	m.sweep()
}

func (m *model) sessionEnd(num record.ClientNum, until int64) {
	c := m.clients[num]
	c.name, c.ended, c.tries = "", until, nil
	m.sweep()
}

func (m *model) again(num record.ClientNum, k Key, id string) []Leased {
	c := m.clients[num]
	if c == nil {
		return nil
	}
	for _, y := range slices.Backward(c.tries) {
		if y.topic != k.Topic || y.group != k.Group || y.id != id {
			continue
		}
		var left []Leased
		for _, it := range y.items {
			q := m.queues[Key{k.Group, k.Topic, it.Queue}]
			if q == nil {
				continue
			}
			if g := q.undone[int64(it.Offset)]; g != nil && g.lease == y.lease && !g.ready && !g.held && !g.keep && m.end(g) > m.now {
				left = append(left, it)
			}
		}
		return left
	}
	return nil
}

func (m *model) stats(k Key) Stats {
	q := m.queues[k]
	s := Stats{Floor: record.QueueOffset(q.next), Next: record.QueueOffset(q.next), FirstReady: -1}
	for _, off := range q.offsets() {
		g := q.undone[off]
		s.Floor = min(s.Floor, record.QueueOffset(off))
		switch {
		case g.ready:
			s.Ready++
			if s.FirstReady < 0 {
				s.FirstReady = record.QueueOffset(off)
			}
		case g.held || g.keep:
			s.Waiting++
		default:
			s.InFlight++
		}
	}
	for off := range q.passed {
		s.Floor = min(s.Floor, record.QueueOffset(off))
	}
	if !m.ordered[k.Group] {
		for off := range q.passed {
			s.Ready++
			if s.FirstReady < 0 || off < int64(s.FirstReady) {
				s.FirstReady = record.QueueOffset(off)
			}
		}
		return s
	}
	s.Waiting += s.Ready + int64(len(q.passed))
	s.Ready, s.FirstReady = 0, -1
	for _, g := range q.groups(k) {
		if g.free {
			s.Ready += int64(len(g.all))
			s.Waiting -= int64(len(g.all))
			if s.FirstReady < 0 {
				s.FirstReady = record.QueueOffset(g.all[0])
			}
		}
	}
	return s
}

func (m *model) keys() []Key {
	var all []Key
	for k := range m.queues {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Queue, b.Queue))
	})
	return all
}

func (m *model) heldBelow(k Key, first int64) []record.QueueOffset {
	var all []record.QueueOffset
	for _, off := range m.queues[k].offsets() {
		if off < first {
			all = append(all, record.QueueOffset(off))
		}
	}
	return all
}

// trim returns how many messages are lost.
func (m *model) trim(k Key, first int64, held []record.QueueOffset) (lost int64) {
	q := m.queues[k]
	for off := range q.undone {
		if off < first && !slices.Contains(held, record.QueueOffset(off)) {
			delete(q.undone, off)
		}
	}
	for off := range q.passed {
		if off < first {
			lost++
			delete(q.passed, off)
		}
	}
	lost += max(0, first-q.next)
	q.next = max(q.next, first)
	m.sweep()
	return lost
}
