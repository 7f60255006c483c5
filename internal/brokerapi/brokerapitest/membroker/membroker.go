// Package membroker is a broker in memory: the reference for the suite in brokerapitest and a stand-in
// for a broker in the tests of other packages.
//
// It is simple rather than fast, holds one lock, stores nothing, and answers before a call returns
// unless Options.Later is set. It checks its callers where it can: the bytes of a delivery are
// overwritten when its reply is released, and replies that were not released are counted. It has no
// goroutines; a timer runs while somebody is armed.
package membroker

import (
	"context"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Options configures a Broker. The zero value of a field means its default.
type Options struct {
	// Topics has the number of queues of each topic.
	Topics map[brokerapi.TopicID]int
	// Groups are the consumer groups. They start at the first message.
	Groups []brokerapi.GroupID
	// Epoch is what the broker leads. Default 1.
	Epoch brokerapi.Epoch
	// SessionTimeout ends a client's session after the last report. Default 60 s.
	SessionTimeout time.Duration
	// GoodbyeDelay is how long session leases live after EndSession. Default 1 s.
	GoodbyeDelay time.Duration
	// Later, if set, runs each answer; it may do so at any time, on any goroutine.
	Later func(answer func())
}

// Broker is a broker in memory and a Connector to it.
type Broker struct {
	o Options

	mu       sync.Mutex
	topics   map[brokerapi.TopicID]*topic
	groups   map[brokerapi.GroupID]bool
	clients  map[string]time.Time // last heard
	sessions map[*session]struct{}
	pos      brokerapi.LogPos
	stopped  error
	timer    *time.Timer
	held     int // replies not released
	requests int
}

type topic struct {
	queues [][]stored
	turn   int
	subs   map[brokerapi.GroupID]*sub
}

type stored struct {
	brokerapi.Message
	pos  brokerapi.LogPos
	time int64
}

// sub is a group's use of a topic.
type sub struct {
	items [][]item // per queue: of the offsets [0, next)
	turn  int
	armed map[*session]struct{}
}

// item is what a group has done with one message.
type item struct {
	done    bool
	keep    bool // the next delivery has the same attempt number
	attempt int32
	lease   brokerapi.LogPos
	until   time.Time
	session bool
	client  string
	id      string // attempt id of the pop
}

// New returns a broker.
func New(o Options) *Broker {
	if o.Epoch == 0 {
		o.Epoch = 1
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = time.Minute
	}
	if o.GoodbyeDelay == 0 {
		o.GoodbyeDelay = time.Second
	}
	if o.Later == nil {
		o.Later = func(answer func()) { answer() }
	}
	b := &Broker{
		o: o, topics: map[brokerapi.TopicID]*topic{}, groups: map[brokerapi.GroupID]bool{},
		clients: map[string]time.Time{}, sessions: map[*session]struct{}{},
	}
	for id, queues := range o.Topics {
		b.topics[id] = &topic{queues: make([][]stored, queues), subs: map[brokerapi.GroupID]*sub{}}
	}
	for _, id := range o.Groups {
		b.groups[id] = true
	}
	return b
}

// Attach opens the broker for one proxy.
func (b *Broker) Attach(proxy string, ev brokerapi.Events) (brokerapi.Broker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped != nil {
		return nil, b.stopped
	}
	s := &session{b: b, proxy: proxy, ev: ev}
	b.sessions[s] = struct{}{}
	return s, nil
}

// Stop makes the broker fail: sessions are told, and later calls get Unavailable.
func (b *Broker) Stop() {
	b.mu.Lock()
	b.stopped = mqerr.New(mqerr.Unavailable, "the broker has stopped")
	sessions := b.sessions
	b.sessions = map[*session]struct{}{}
	b.setTimer(time.Time{})
	b.mu.Unlock()
	for s := range sessions {
		if s.ev.Down != nil {
			s.ev.Down(b.stopped)
		}
	}
}

// Sessions is how many proxies are attached.
func (b *Broker) Sessions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sessions)
}

// Held is how many replies to pops have messages and were not released.
func (b *Broker) Held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// Requests is how many calls the broker has got, of all kinds.
func (b *Broker) Requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// session is the broker as one proxy sees it.
type session struct {
	brokerapi.Unsupported

	b     *Broker
	proxy string
	ev    brokerapi.Events
	gone  bool
}

var errGone = mqerr.New(mqerr.Unavailable, "this connection to the broker is closed")

// usable tells why a call cannot be served. The lock is held.
func (s *session) usable(h *brokerapi.Head) error {
	s.b.requests++
	switch {
	case s.gone:
		return errGone
	case s.b.stopped != nil:
		return s.b.stopped
	case h == nil:
		return nil
	case h.Epoch > s.b.o.Epoch:
		return mqerr.New(mqerr.Fenced, "the broker leads epoch %d, epoch %d has begun elsewhere", s.b.o.Epoch, h.Epoch)
	case !h.Deadline.IsZero() && !time.Now().Before(h.Deadline):
		return mqerr.New(mqerr.Timeout, "the request's deadline passed while it waited in the broker")
	}
	return nil
}

// topic finds a topic. The lock is held.
func (s *session) topic(id brokerapi.TopicID) (*topic, error) {
	if t := s.b.topics[id]; t != nil {
		return t, nil
	}
	return nil, mqerr.New(mqerr.TopicNotFound, "topic %d is not served here", id)
}

// sub finds a group's use of a topic. The lock is held.
func (s *session) sub(id brokerapi.TopicID, group brokerapi.GroupID) (*topic, *sub, error) {
	t, err := s.topic(id)
	if err != nil {
		return nil, nil, err
	}
	if !s.b.groups[group] {
		return nil, nil, mqerr.New(mqerr.GroupNotFound, "group %d does not exist here", group)
	}
	u := t.subs[group]
	if u == nil {
		u = &sub{items: make([][]item, len(t.queues)), armed: map[*session]struct{}{}}
		t.subs[group] = u
	}
	return t, u, nil
}

// Close forgets what this proxy armed.
func (s *session) Close() error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.gone = true
	delete(s.b.sessions, s)
	for _, t := range s.b.topics {
		for _, u := range t.subs {
			delete(u.armed, s)
		}
	}
	return nil
}

// Alive notes that clients were heard from.
func (s *session) Alive(ctx context.Context, clients []string) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.usable(nil); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return mqerr.New(mqerr.Cancelled, "gave up: %w", ctx.Err())
	}
	for _, c := range clients {
		if _, known := s.b.clients[c]; known {
			s.b.clients[c] = time.Now()
		}
	}
	return nil
}

// EndSession ends a client's session leases soon.
func (s *session) EndSession(ctx context.Context, client string) error {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.usable(nil); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return mqerr.New(mqerr.Cancelled, "gave up: %w", ctx.Err())
	}
	end := time.Now().Add(s.b.o.GoodbyeDelay)
	for it := range s.b.items {
		if it.session && it.client == client {
			it.session, it.until = false, earlier(it.until, end)
		}
	}
	delete(s.b.clients, client)
	s.b.schedule()
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// items walks over what all groups have in flight. The lock is held.
func (b *Broker) items(yield func(*item) bool) {
	for _, t := range b.topics {
		for _, u := range t.subs {
			for q := range u.items {
				for i := range u.items[q] {
					if it := &u.items[q][i]; !it.done && !yield(it) {
						return
					}
				}
			}
		}
	}
}
