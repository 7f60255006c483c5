// Package clients remembers the clients that talk to this proxy: what their settings say, which
// telemetry streams they have, and when they were last heard from.
//
// It is a cache. Every call works for a client that is not in it, since clients come to a proxy from
// another one, or after its restart, minutes before they send their settings again. Run tells the
// brokers which consumers are alive, so that the leases of a push consumer last while it does.
package clients

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Type is what a client does; the numbers are those of the public protocol.
type Type int32

// Client types.
const (
	Unknown        Type = 0
	Producer       Type = 1
	PushConsumer   Type = 2
	SimpleConsumer Type = 3
	PullConsumer   Type = 4
	LitePush       Type = 5
	LiteSimple     Type = 6
)

// Settings is what a client said about itself, as far as the proxy uses it later.
type Settings struct {
	Type           Type
	Language       int32         // of its library, as the public protocol numbers them; 0: not said
	Group          string        // of a consumer
	Subscription   uint64        // hash of what a consumer subscribes to; 0: not to be compared
	Topics         []string      // that a producer declared
	RequestTimeout time.Duration // deadline of its unary calls; 0: not stated
	PollTimeout    time.Duration // long polling time as the client stated it; 0: not stated
}

// Stream is a telemetry stream, compared by identity.
type Stream interface {
	// Send sends one command to the client.
	Send(msg []byte) error
}

// Options configures New. The zero value of a field means its default.
type Options struct {
	// MaxClients bounds the table. Beyond it the client of a few that was silent for longest makes
	// room. Default 100,000.
	MaxClients int
	// Expire is how long after its last sign of life a client is forgotten. Default 120 s.
	Expire time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxClients == 0 {
		o.MaxClients = 100_000
	}
	if o.Expire == 0 {
		o.Expire = 120 * time.Second
	}
	return o
}

// streamsMax bounds the streams that are remembered for one client. Official clients have one for
// each address under which they know the proxy.
const streamsMax = 16

// Table is the clients by their id. It is safe for concurrent use and never reads a clock.
type Table struct {
	o      Options
	base   time.Time    // what heard counts from
	pushed atomic.Int64 // clients that made room

	mu        sync.RWMutex
	clients   map[string]*client // guarded by mu
	producers producers          // guarded by mu
}

// client is one record. Fields without a note are guarded by Table.mu.
type client struct {
	heard    atomic.Int64        // last sign of life, ms since base
	renews   atomic.Bool         // a lease of it may last as long as it lives
	settings *Settings           // nil: none were sent
	streams  []Stream            // oldest first
	produces map[string]struct{} // topics that it declared or sent transactions to
	listed   bool                // it is in the rings of those
}

// New returns an empty table. now is any time not after those that are passed later.
func New(o Options, now time.Time) *Table {
	return &Table{o: o.withDefaults(), base: now, clients: map[string]*client{}, producers: newProducers()}
}

// ms is a time as heard keeps it. It does not follow steps of the wall clock.
func (t *Table) ms(now time.Time) int64 { return now.Sub(t.base).Milliseconds() }

// Heard notes a sign of life of a client, if it is known.
func (t *Table) Heard(id string, now time.Time) {
	t.mu.RLock()
	c := t.clients[id]
	t.mu.RUnlock()
	if c != nil {
		c.touch(t.ms(now))
	}
}

func (c *client) touch(ms int64) {
	for {
		old := c.heard.Load()
		if old >= ms || c.heard.CompareAndSwap(old, ms) {
			return
		}
	}
}

// Beat notes a heartbeat. A consumer whose settings are not known may be a push consumer that moved
// here, so it is reported to the brokers.
func (t *Table) Beat(id string, consumer bool, now time.Time) {
	t.with(id, now, func(c *client) {
		if consumer && c.settings == nil {
			c.renews.Store(true)
		}
	})
}

// Renews notes a client that asked for leases which last as long as it lives.
func (t *Table) Renews(id string, now time.Time) {
	t.mu.RLock()
	c := t.clients[id]
	t.mu.RUnlock()
	if c != nil && c.renews.Load() {
		c.touch(t.ms(now))
		return
	}
	t.with(id, now, func(c *client) { c.renews.Store(true) })
}

// Put takes the settings of a client, which replace earlier ones, and the stream that they came on.
func (t *Table) Put(id string, s Settings, from Stream, now time.Time) {
	t.with(id, now, func(c *client) {
		c.settings = &s
		if s.Type == PushConsumer || s.Type == LitePush {
			c.renews.Store(true)
		}
		c.leave(from)
		if len(c.streams) == streamsMax {
			c.streams = append(c.streams[:0], c.streams[1:]...)
		}
		c.streams = append(c.streams, from)
		if s.Type == Producer {
			for _, topic := range s.Topics {
				t.producers.add(c, topic)
			}
		}
		t.producers.list(c, true)
	})
}

// with calls f for the record of a client, which is made if there is none.
func (t *Table) with(id string, now time.Time, f func(*client)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[id]
	if c == nil {
		if len(t.clients) >= t.o.MaxClients {
			t.makeRoomLocked()
		}
		c = &client{}
		t.clients[id] = c
	}
	c.touch(t.ms(now))
	f(c)
}

// makeRoomLocked drops the most silent of a few clients.
func (t *Table) makeRoomLocked() {
	const look = 8
	victim, least, n := "", int64(0), 0
	for id, c := range t.clients { // starts anywhere
		if h := c.heard.Load(); n == 0 || h < least {
			victim, least = id, h
		}
		if n++; n == look {
			break
		}
	}
	t.producers.drop(t.clients[victim])
	delete(t.clients, victim)
	t.pushed.Add(1)
}

// PushedOut is how many clients were forgotten to make room for others.
func (t *Table) PushedOut() int64 { return t.pushed.Load() }

// Settings returns what a client said last, false if nothing is known.
func (t *Table) Settings(id string) (Settings, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c := t.clients[id]
	if c == nil || c.settings == nil {
		return Settings{}, false
	}
	return *c.settings, true
}

// Leave forgets a stream that has ended.
func (t *Table) Leave(id string, s Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.clients[id]; c != nil {
		c.leave(s)
		t.producers.list(c, len(c.streams) > 0)
	}
}

func (c *client) leave(s Stream) {
	for i := range c.streams {
		if c.streams[i] == s {
			c.streams = append(c.streams[:i], c.streams[i+1:]...)
			return
		}
	}
}

// Streams returns the open streams of a client on which it sent settings, the newest first.
func (t *Table) Streams(id string) []Stream {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c := t.clients[id]
	if c == nil {
		return nil
	}
	out := make([]Stream, 0, len(c.streams))
	for _, v := range slices.Backward(c.streams) {
		out = append(out, v)
	}
	return out
}

// Drop forgets a client that said goodbye.
func (t *Table) Drop(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.producers.drop(t.clients[id])
	delete(t.clients, id)
}

// Expire forgets the clients that were silent for too long.
func (t *Table) Expire(now time.Time) {
	limit := t.ms(now) - t.o.Expire.Milliseconds()
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, c := range t.clients {
		if c.heard.Load() <= limit {
			t.producers.drop(c)
			delete(t.clients, id)
		}
	}
}

// Alive lists the clients with leases that last as long as they live and that were heard from at or
// after a time.
func (t *Table) Alive(since time.Time) []string {
	from := t.ms(since)
	t.mu.RLock()
	defer t.mu.RUnlock()
	var ids []string
	for id, c := range t.clients {
		if c.renews.Load() && c.heard.Load() >= from {
			ids = append(ids, id)
		}
	}
	return ids
}

// Who is what clients have in common that are counted together.
type Who struct {
	Type     Type
	Language int32
}

// Kinds counts the clients that have sent settings.
func (t *Table) Kinds() map[Who]int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := map[Who]int{}
	for _, c := range t.clients {
		if c.settings != nil {
			out[Who{c.settings.Type, c.settings.Language}]++
		}
	}
	return out
}

// Mixed lists at most limit groups whose consumers subscribe to different things, by name: each then gets
// messages that others of its group would have passed over, or the other way round.
func (t *Table) Mixed(limit int) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	first, mixed := map[string]uint64{}, map[string]struct{}{}
	for _, c := range t.clients {
		if c.settings == nil || c.settings.Subscription == 0 {
			continue
		}
		s := c.settings
		if seen, ok := first[s.Group]; !ok {
			first[s.Group] = s.Subscription
		} else if seen != s.Subscription {
			mixed[s.Group] = struct{}{}
		}
	}
	names := slices.Sorted(maps.Keys(mixed))
	return names[:min(len(names), limit)]
}

// Len is the number of clients known.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.clients)
}
