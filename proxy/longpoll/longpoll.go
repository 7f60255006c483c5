// Package longpoll is where receives wait for messages.
//
// A receive first asks the brokers that may answer it, one after the other, and arms each: the broker
// then says once when it has something ready. When all were empty the receive waits, without a
// goroutine, a timer or a loop of its own, until a broker says so, its time is over or its caller
// goes away. core.go is the decision (events in, actions out; no lock, clock or call); Polls holds
// its lock, the one timer of all receives, and carries the actions out.
package longpoll

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Brokers finds the broker that leads a shard.
type Brokers interface {
	// Broker returns the broker and the highest epoch seen of its shard. The error is of kind
	// Unavailable when the shard has no reachable master now.
	Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error)
}

// Options configures New. The zero value of a field means its default.
type Options struct {
	Brokers Brokers // required
	// MaxReceives bounds the receives that wait at one proxy. Default 100,000.
	MaxReceives int
	// MaxPerGroup bounds the receives of one group (of a lite group: of one client) on one topic. Default 8192: the reference server
	// allows 1024 for each of a topic's 8 queues.
	MaxPerGroup int
	// Retry is how long after a failed pop a waiting receive tries that broker again, unless Up comes
	// earlier. Default 1 s.
	Retry time.Duration
	// Patience is how long a receive waits while none of its brokers can be asked, before it is told so; one that has
	// waited for messages before waits on. Default: not at all.
	Patience time.Duration
	Log      *slog.Logger // default: discard
}

func (o Options) withDefaults() Options {
	if o.MaxReceives == 0 {
		o.MaxReceives = 100_000
	}
	if o.MaxPerGroup == 0 {
		o.MaxPerGroup = 8192
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Request is one receive. It belongs to Polls until it is answered or cancelled.
type Request struct {
	// Shards may answer, at least one. They are asked in this order, from a random one on.
	Shards []brokerapi.ShardID
	// Pop says what to lease. Arm, Epoch and Deadline are set by Polls.
	Pop brokerapi.PopRequest
	// Own says that what is ready for the group need not be so for this client: brokers tell of each client
	// of a lite group apart.
	Own bool
	// Deadline is when the receive is answered with nothing.
	Deadline time.Time
}

// Answer ends a receive: messages, an error, or neither when nothing came in time. Who gets messages
// releases the reply and gives back what it cannot pass on.
type Answer struct {
	Shard brokerapi.ShardID // where the messages are leased
	Reply *brokerapi.PopReply
	Err   error
}

// Polls holds the receives of one proxy. It is safe for concurrent use and has no goroutine; the
// function of its one timer runs for as long as an expiry takes.
type Polls struct {
	o Options

	mu      sync.Mutex // guards what follows
	core    core
	timer   *time.Timer
	timerAt time.Time // zero: the timer is stopped
	closed  bool
	given   uint64 // messages given back
	changes uint64 // requests that gave them back
	lost    uint64 // messages that could not be given back
}

// New returns an empty Polls.
func New(o Options) *Polls {
	o = o.withDefaults()
	return &Polls{o: o, core: newCore(o)}
}

// Receive answers req through done: exactly once unless Cancel came first, on any goroutine,
// possibly before Receive returns. done must not block.
func (p *Polls) Receive(req *Request, done func(Answer)) *Wait {
	w := newWait(p, req, done)
	start := 0
	if n := len(req.Shards); n > 1 {
		start = rand.IntN(n)
	}
	p.mu.Lock()
	p.core.arrive(w, start, time.Now())
	p.unlockAndAct()
	return w
}

// Ready takes the events of a broker.
func (p *Polls) Ready(shard brokerapi.ShardID, events []brokerapi.Ready) {
	p.mu.Lock()
	for _, e := range events {
		p.core.ready(shard, e)
	}
	p.unlockAndAct()
}

// Down says that the broker of a shard is gone: what was armed there is forgotten.
func (p *Polls) Down(shard brokerapi.ShardID) {
	p.mu.Lock()
	p.core.down(shard, time.Now())
	p.unlockAndAct()
}

// Up says that a shard has a reachable broker again: waiting receives ask it anew, without waiting
// for their next try.
func (p *Polls) Up(shard brokerapi.ShardID) {
	p.mu.Lock()
	p.core.up(shard)
	p.unlockAndAct()
}

// Drain answers every waiting receive with nothing, and later ones at once: clients ask again, and by then have
// heard that they should ask elsewhere.
func (p *Polls) Drain() {
	p.mu.Lock()
	p.closed = true
	p.core.drain()
	p.unlockAndAct()
}

// Stats are counters since the start, except Waiting.
type Stats struct {
	Waiting    int    // receives that are not answered yet
	Receives   uint64 // receives taken
	Refused    uint64 // receives refused because a bound was reached
	Pops       uint64 // pops sent to brokers
	Requests   uint64 // all requests sent to brokers: pops and give-backs
	TimerWakes uint64 // how often the timer fired
	GivenBack  uint64 // messages given back undelivered
	NotGiven   uint64 // messages that could not be given back; their leases run out
}

// Waiting is how many receives are not answered yet.
func (p *Polls) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.core.open
}

// Stats returns the counters.
func (p *Polls) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.core.stats
	s.Waiting = p.core.open
	s.Requests = s.Pops + p.changes
	s.GivenBack, s.NotGiven = p.given, p.lost
	return s
}

func (p *Polls) cancel(w *Wait) bool {
	p.mu.Lock()
	won := p.core.cancel(w)
	p.unlockAndAct()
	return won
}

func (p *Polls) fire() {
	p.mu.Lock()
	p.core.stats.TimerWakes++
	p.timerAt = time.Time{}
	p.core.expire(time.Now())
	p.unlockAndAct()
}

// setTimerLocked makes the timer fire at the core's next time, or not at all: a timer that fires for
// a receive that is over would be a wake-up for nothing.
func (p *Polls) setTimerLocked() {
	at, ok := p.core.next()
	switch {
	case !ok && !p.timerAt.IsZero():
		p.timer.Stop()
		p.timerAt = time.Time{}
	case ok && !at.Equal(p.timerAt):
		p.timerAt = at
		if p.timer == nil {
			p.timer = time.AfterFunc(time.Until(at), p.fire)
		} else {
			p.timer.Reset(time.Until(at))
		}
	}
}
