package longpoll

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
)

// model is a core between receives and brokers that answer as late and in whatever order chance
// says. It counts every message, so that a lost lease shows.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	c       core
	now     time.Time
	shards  []*modelShard
	waits   []*Wait // open, as far as the model was told
	pops    []*Wait // sent, not executed
	replies []modelReply
	events  []modelEvent

	stored, delivered, given, filtered, lost int
	ends                                     map[*Wait]int // answers and cancels, must be 1
	bound                                    int           // messages that one client may hold at a shard
}

type modelShard struct {
	id    brokerapi.ShardID
	up    bool
	ready int
	armed bool
	held  map[string]int  // messages by client
	full  map[string]bool // clients that hear when they may have more
}

type modelReply struct {
	w     *Wait
	shard *modelShard
	reply *brokerapi.PopReply
	err   error
}

type modelEvent struct {
	shard  *modelShard
	ready  int    // a Ready event
	down   bool   // Down
	upped  bool   // Up
	client string // of a Ready event, "" for the group
}

const modelTopic, modelGroup = 1, 2

func newModel(t *testing.T, rng *rand.Rand) *model {
	m := &model{t: t, rng: rng, now: time.Unix(1000, 0), ends: map[*Wait]int{}, bound: 1 << 30}
	if rng.IntN(3) > 0 {
		m.bound = 1 + rng.IntN(5)
	}
	m.c = newCore(Options{Patience: time.Duration(rng.IntN(2)*rng.IntN(5)) * time.Second}.withDefaults())
	for i := range 1 + rng.IntN(3) {
		m.shards = append(m.shards, &modelShard{id: brokerapi.ShardID(i + 1), up: true, held: map[string]int{}, full: map[string]bool{}})
	}
	return m
}

func (m *model) receive() {
	req := &Request{Deadline: m.now.Add(time.Duration(1+m.rng.IntN(20)) * time.Second)}
	req.Pop.Topic, req.Pop.Group, req.Pop.Max = modelTopic, modelGroup, 1+m.rng.IntN(4)
	req.Pop.Client = []string{"a", "b", "c"}[m.rng.IntN(3)]
	if m.rng.IntN(4) == 0 {
		req.Shards = []brokerapi.ShardID{m.shards[m.rng.IntN(len(m.shards))].id}
	} else {
		for _, s := range m.shards {
			req.Shards = append(req.Shards, s.id)
		}
	}
	w := newWait(nil, req, nil)
	m.waits = append(m.waits, w)
	m.c.arrive(w, m.rng.IntN(len(req.Shards)), m.now)
	m.act()
}

// act carries out what the core decided; it runs after every event.
func (m *model) act() {
	for _, a := range m.c.out {
		switch a.kind {
		case actPop:
			m.pops = append(m.pops, a.w)
		case actAnswer:
			m.ends[a.w]++
			if a.answer.Reply != nil {
				m.delivered += len(a.answer.Reply.Messages)
			}
		case actReturn:
			m.release(m.shard(a.answer.Shard), a.w.pop.Client, len(a.answer.Reply.Messages))
			m.store(m.shard(a.answer.Shard), len(a.answer.Reply.Messages))
			m.given += len(a.answer.Reply.Messages)
		}
	}
	m.c.out = m.c.out[:0]
	m.check()
}

func (m *model) shard(id brokerapi.ShardID) *modelShard { return m.shards[id-1] }

func (m *model) store(s *modelShard, n int) {
	if !s.up {
		m.lost += n
		return
	}
	s.ready += n
	if s.armed {
		s.armed = false
		m.events = append(m.events, modelEvent{shard: s, ready: s.ready})
	}
}

// execute runs a pop at its broker.
func (m *model) execute(w *Wait) {
	s := m.shard(w.popping.place.shard)
	if !s.up {
		kind := mqerr.Unavailable
		if m.rng.IntN(2) == 0 {
			kind = mqerr.UnknownOutcome
		}
		m.replies = append(m.replies, modelReply{w, s, nil, mqerr.New(kind, "down")})
		return
	}
	if m.rng.IntN(20) == 0 {
		m.replies = append(m.replies, modelReply{w, s, nil, mqerr.New(mqerr.Exhausted, "busy")})
		return
	}
	if m.rng.IntN(40) == 0 {
		m.replies = append(m.replies, modelReply{w, s, nil, mqerr.New(mqerr.Denied, "not you")})
		return
	}
	client := w.pop.Client
	room := m.bound - s.held[client]
	if room <= 0 {
		s.full[client] = true
		reply := brokerapi.NewPopReply(nil, nil)
		reply.Full, reply.More = true, s.ready > 0
		s.armed = s.armed || !reply.More
		m.replies = append(m.replies, modelReply{w, s, reply, nil})
		return
	}
	n := min(w.pop.Max, s.ready, room)
	s.ready -= n
	skipped := 0
	if m.rng.IntN(3) == 0 {
		skipped = m.rng.IntN(n + 1) // the filter let them pass: done
	}
	m.filtered += skipped
	s.held[client] += n - skipped
	s.armed = s.ready == 0
	reply := brokerapi.NewPopReply(make([]brokerapi.Delivery, n-skipped), nil)
	reply.More = !s.armed
	m.replies = append(m.replies, modelReply{w, s, reply, nil})
}

// release ends leases of a client.
func (m *model) release(s *modelShard, client string, n int) {
	if n = min(n, s.held[client]); n == 0 {
		return
	}
	s.held[client] -= n
	if s.full[client] && s.up {
		delete(s.full, client)
		m.events = append(m.events, modelEvent{shard: s, ready: 1, client: client})
	}
}

// fail takes a broker away: what was armed or on its way is lost.
func (m *model) fail(s *modelShard) {
	s.up, s.armed = false, false
	clear(s.full)
	for i := range m.replies {
		if r := &m.replies[i]; r.shard == s && m.rng.IntN(2) == 0 { // else it came through before
			if r.reply != nil {
				m.lost += len(r.reply.Messages)
			}
			r.reply, r.err = nil, mqerr.New(mqerr.UnknownOutcome, "link broke")
		}
	}
	keep := m.events[:0]
	for _, e := range m.events {
		if e.shard != s {
			keep = append(keep, e)
		}
	}
	m.events = append(keep, modelEvent{shard: s, down: true})
}

// step lets one thing happen.
func (m *model) step() {
	s := m.shards[m.rng.IntN(len(m.shards))]
	switch k := m.rng.IntN(100); {
	case k < 12:
		m.receive()
	case k < 26:
		n := 1 + m.rng.IntN(3)
		if s.up {
			m.stored += n
			m.store(s, n)
		}
	case k < 32 && len(m.waits) > 0:
		w := m.waits[m.rng.IntN(len(m.waits))]
		if m.c.cancel(w) {
			m.ends[w]++
		}
		m.act()
	case k < 36:
		m.now = m.now.Add(time.Duration(m.rng.IntN(3000)) * time.Millisecond)
		m.c.expire(m.now)
		m.act()
	case k < 38 && s.up:
		m.fail(s)
	case k < 42 && !s.up:
		s.up = true
		if m.rng.IntN(2) == 0 { // else nobody says so
			m.events = append(m.events, modelEvent{shard: s, upped: true})
		}
	case k < 48:
		m.release(s, []string{"a", "b", "c"}[m.rng.IntN(3)], 1+m.rng.IntN(4))
	case k < 66:
		m.next(&m.pops)
	case k < 84:
		m.nextReply()
	default:
		m.nextEvent()
	}
}

func take[T any](rng *rand.Rand, list *[]T) (T, bool) {
	var zero T
	if len(*list) == 0 {
		return zero, false
	}
	i := rng.IntN(len(*list))
	x := (*list)[i]
	*list = append((*list)[:i], (*list)[i+1:]...)
	return x, true
}

func (m *model) next(pops *[]*Wait) {
	if w, ok := take(m.rng, pops); ok {
		m.execute(w)
	}
}

func (m *model) nextReply() {
	if r, ok := take(m.rng, &m.replies); ok {
		m.c.replied(r.w, r.reply, r.err, m.now)
		m.act()
	}
}

func (m *model) nextEvent() {
	e, ok := take(m.rng, &m.events)
	switch {
	case !ok:
		return
	case e.down:
		m.c.down(e.shard.id, m.now)
	case e.upped:
		m.c.up(e.shard.id)
	default:
		event := brokerapi.Ready{Topic: modelTopic, Group: modelGroup, Count: e.ready}
		if e.client != "" {
			event.Client = brokerapi.HashClient(e.client)
		}
		m.c.ready(e.shard.id, event)
	}
	m.act()
}

// check asserts what must hold after every event.
func (m *model) check() {
	opened := 0
	for _, g := range m.c.groups {
		if g.key.client == 0 {
			opened += g.open
		}
		for _, p := range g.places {
			require.False(m.t, p.credit > 0 && p.idle.first != nil, "credit and idle receives")
			var last uint64
			for s := p.idle.first; s != nil; s = s.next {
				require.Less(m.t, last, s.w.seq, "idle receives out of order")
				require.Equal(m.t, open, s.w.state)
				require.Nil(m.t, s.w.popping)
				last = s.w.seq
			}
		}
	}
	require.Equal(m.t, m.c.open, opened)
	require.Len(m.t, m.c.due, m.c.open)
}

// settle lets everything that is on its way arrive, retries included, but no deadline pass.
func (m *model) settle() {
	for range 100_000 {
		switch {
		case len(m.pops) > 0:
			m.next(&m.pops)
		case len(m.replies) > 0:
			m.nextReply()
		case len(m.events) > 0:
			m.nextEvent()
		case len(m.c.unarmed) > 0 && m.anyUp():
			m.now = m.c.retryAt
			for _, w := range m.c.due {
				w.at = m.now.Add(time.Hour) // waits for as long as the test needs
			}
			m.c.expire(m.now)
			m.act()
		default:
			return
		}
	}
	m.t.Fatal("does not come to rest")
}

// anyUp tells whether a retry can end: a place of a broker that stays away is tried for ever.
func (m *model) anyUp() bool {
	for p := range m.c.unarmed {
		if m.shard(p.shard).up {
			return true
		}
	}
	return false
}

// TestNoWakeUpAndNoLeaseIsLost drives the core through random histories. Whenever all is at rest no
// receive may wait where a message is ready, and every place with waiting receives is armed.
func TestNoWakeUpAndNoLeaseIsLost(t *testing.T) {
	seed := testseed.First(t)
	for run := range 300 {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		m := newModel(t, rng)
		for range 8 {
			for range 60 {
				m.step()
			}
			m.settle()
			m.atRest()
		}
		m.c.drain()
		m.act()
		m.settle()
		require.Empty(t, m.c.groups, "run %d", run)
		require.Zero(t, m.c.open)
		for _, w := range m.waits {
			require.Equal(t, 1, m.ends[w], "run %d: a receive ended not exactly once", run)
		}
		left := 0
		for _, s := range m.shards {
			left += s.ready
		}
		require.Equal(t, m.stored, m.delivered+m.filtered+m.lost+left, "run %d: messages do not add up", run)
	}
}

func (m *model) atRest() {
	for _, g := range m.c.groups {
		require.Zero(m.t, g.pops)
		for _, p := range g.places {
			s := m.shard(p.shard)
			if p.idle.first == nil || !s.up {
				continue
			}
			if client := p.idle.first.w.pop.Client; g.key.client != 0 {
				require.GreaterOrEqual(m.t, s.held[client], m.bound, "a receive of client %s waits aside, which may have more", client)
				require.True(m.t, s.full[client], "client %s will not hear that it may have more", client)
				continue
			}
			require.Zero(m.t, s.ready, "messages are ready at shard %d and a receive waits", s.id)
			require.True(m.t, s.armed, "receives wait at shard %d, which is not armed", s.id)
		}
	}
}
