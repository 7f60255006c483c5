package engine

import (
	"container/heap"
	"maps"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// Who subscribes to which lite topic is soft state: clients say it again every 30 s. Each client has a
// list of those of its lite topics in which something may be ready. Whatever may make something ready (a
// message, the end of a lease, the end of a message before it, the subscription itself) puts the lite
// topic at the end of the lists of its subscribers, and a receive takes it from the front. So neither a
// receive nor an event costs more with more subscriptions or lite topics.

// liteSilent is how long after its last sign of life a client's subscriptions stay, ms.
const liteSilent = 3 * 60_000

// lites is what the writer keeps of lite clients and of lite topics that may go.
type lites struct {
	byID          map[string][]*liteClient // client id to its use of groups, nearly always one
	subscriptions int
	silent        liteHeap // clients, by when they may have been silent for too long
	old           liteHeap // lite topics, by when they may go, as a store time
}

// liteGroup is the clients of one group.
type liteGroup struct {
	id      record.GroupID
	clients map[string]*liteClient
	names   map[string]map[*liteSub]struct{} // subscriptions to each lite topic
}

// liteClient is one client of a group.
type liteClient struct {
	topic   *topicState
	group   *liteGroup
	id      string
	hash    uint64 // brokerapi.HashClient
	subs    map[string]*liteSub
	version int64    // of the last change
	last    int64    // sign of life, lease clock, ms
	from    *session // that heard from it last
	gone    bool

	// first to back is the list of what may be ready.
	first, back *liteSub
	armed       map[*session]struct{}
	told        bool // is in ready.clients
}

// liteSub is a client's subscription to one lite topic.
type liteSub struct {
	client       *liteClient
	name         string
	next, before *liteSub // in the client's list
	listed       bool
	ended        bool
}

// client returns a client of a group and notes that it lives.
func (l *lites) client(w *writer, t *topicState, g record.GroupID, id string, from *session) *liteClient {
	lg := t.lite.groups[g]
	if lg == nil {
		lg = &liteGroup{id: g, clients: map[string]*liteClient{}, names: map[string]map[*liteSub]struct{}{}}
		t.lite.groups[g] = lg
	}
	c := lg.clients[id]
	if c == nil {
		c = &liteClient{topic: t, group: lg, id: id, hash: brokerapi.HashClient(id), subs: map[string]*liteSub{}, armed: map[*session]struct{}{}}
		lg.clients[id] = c
		if l.byID == nil {
			l.byID = map[string][]*liteClient{}
		}
		l.byID[id] = append(l.byID[id], c)
		heap.Push(&l.silent, liteEnd{at: w.lease + liteSilent, client: c})
	}
	c.last, c.from = w.lease, from
	return c
}

// heard notes a sign of life of a client in all its groups.
func (l *lites) heard(w *writer, id string) {
	for _, c := range l.byID[id] {
		c.last = w.lease
	}
}

// goodbye ends all subscriptions of a client.
func (l *lites) goodbye(w *writer, id string) {
	for _, c := range l.byID[id] {
		l.drop(w, c)
	}
	delete(l.byID, id)
}

// drop forgets a client; byID is the caller's.
func (l *lites) drop(w *writer, c *liteClient) {
	c.gone = true
	w.ready.armed -= len(c.armed)
	clear(c.armed)
	for _, s := range c.subs {
		l.unsubscribe(s)
	}
	delete(c.group.clients, c.id)
	if len(c.group.clients) == 0 {
		delete(c.topic.lite.groups, c.group.id)
	}
}

func (l *lites) forget(w *writer, c *liteClient) {
	l.drop(w, c)
	rest := l.byID[c.id][:0]
	for _, o := range l.byID[c.id] {
		if o != c {
			rest = append(rest, o)
		}
	}
	if l.byID[c.id] = rest; len(rest) == 0 {
		delete(l.byID, c.id)
	}
}

// dropGroup forgets the clients of a deleted group.
func (l *lites) dropGroup(w *writer, t *topicState, g record.GroupID) {
	if lg := t.lite.groups[g]; lg != nil {
		for _, c := range maps.Clone(lg.clients) {
			l.forget(w, c)
		}
	}
}

// dropTopic forgets the clients of a deleted parent.
func (l *lites) dropTopic(w *writer, t *topicState) {
	for g := range maps.Clone(t.lite.groups) {
		l.dropGroup(w, t, g)
	}
}

// leave forgets a proxy that is gone. Its clients stay: they come to another one.
func (l *lites) leave(w *writer, t *topicState, s *session) {
	for _, lg := range t.lite.groups {
		for _, c := range lg.clients {
			if _, is := c.armed[s]; is {
				delete(c.armed, s)
				w.ready.armed--
			}
			if c.from == s {
				c.from = nil
			}
		}
	}
	s.ended = nil
}

// subscribe adds a lite topic to those of a client; what is in it may be ready.
func (l *lites) subscribe(w *writer, c *liteClient, name string) {
	if c.subs[name] != nil {
		return
	}
	s := &liteSub{client: c, name: name}
	c.subs[name] = s
	l.subscriptions++
	all := c.group.names[name]
	if all == nil {
		all = map[*liteSub]struct{}{}
		c.group.names[name] = all
	}
	all[s] = struct{}{}
	if w.views.lite.Named(c.topic.def.ID, name) != nil {
		w.list(s)
	}
}

func (l *lites) unsubscribe(s *liteSub) {
	if s.ended {
		return
	}
	s.ended = true
	l.subscriptions--
	c := s.client
	if s.listed {
		c.unlist(s)
	}
	delete(c.subs, s.name)
	all := c.group.names[s.name]
	if delete(all, s); len(all) == 0 {
		delete(c.group.names, s.name)
	}
}

// list puts a subscription at the end of its client's list.
func (w *writer) list(s *liteSub) {
	if s.listed || s.ended {
		return
	}
	s.listed = true
	c := s.client
	if s.before = c.back; c.back != nil {
		c.back.next = s
	} else {
		c.first = s
	}
	c.back = s
	w.noteLite(c)
}

// noteLite notes that something may be ready for a client.
func (w *writer) noteLite(c *liteClient) {
	if len(c.armed) > 0 && !c.told {
		c.told = true
		w.ready.clients = append(w.ready.clients, c)
	}
}

// take takes the first of a client's list, nil if it is empty.
func (c *liteClient) take() *liteSub {
	s := c.first
	if s != nil {
		c.unlist(s)
	}
	return s
}

// unlist takes a subscription off its client's list, on which it is.
func (c *liteClient) unlist(s *liteSub) {
	if s.before != nil {
		s.before.next = s.next
	} else {
		c.first = s.next
	}
	if s.next != nil {
		s.next.before = s.before
	} else {
		c.back = s.before
	}
	s.next, s.before, s.listed = nil, nil, false
}

// liteWake says that something may be ready for a group in a lite topic.
func (w *writer) liteWake(t *topicState, g record.GroupID, q record.QueueID) {
	lg := t.lite.groups[g]
	if lg == nil {
		return
	}
	if c := w.views.lite.At(t.def.ID, q); c != nil {
		for s := range lg.names[c.Name] {
			w.list(s)
		}
	}
}
