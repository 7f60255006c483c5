package pop

import (
	"cmp"
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// model is the in-flight table as plainly as it can be said: maps, and a look at everything each time.
type model struct {
	now     int64
	queues  map[Key]*modelQueue
	clients map[record.ClientNum]*modelClient
}

type modelQueue struct {
	next   int64
	undone map[int64]*modelMessage
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
	return &model{queues: map[Key]*modelQueue{}, clients: map[record.ClientNum]*modelClient{}}
}

// modelDead is the Dead of the model and of the tables compared with it.
func modelDead(k Key, attempt uint16) bool { return int(attempt) >= 2+int(k.Group) }

func (m *model) queue(k Key, from int64) *modelQueue {
	q := m.queues[k]
	if q == nil {
		q = &modelQueue{next: from, undone: map[int64]*modelMessage{}}
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
	for at := range q.undone {
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
	for off := q.next; off < end && take(off, 1, -1); off++ {
	}
	return items
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
		for _, it := range sec.Items {
			q := m.queue(Key{ck.Group, ck.Topic, sec.Queue}, int64(it.Offset))
			q.next = max(q.next, int64(it.Offset)+1)
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
