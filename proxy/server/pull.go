package server

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// pull is one PullMessage call. Its fields alias the request, which lives until the call is completed.
type pull struct {
	s       *Server
	call    call.Stream
	started time.Time
	req     wire.PullMessageRequest
	at      place
	out     brokerapi.PullRequest
	ended   atomic.Bool // whoever sets it answers: the broker's reply, the caller's end or a drain
}

// pulls are the calls that wait for a broker, so that a drain can answer them.
type pulls struct {
	mu      sync.Mutex
	waiting map[*pull]struct{}
	drained bool
}

// PullMessage reads a queue from an offset on, without a lease: status, messages, and the offset to go on
// with. The handler returns at once; the call waits in the broker.
func (s *Server) PullMessage(c call.Stream) {
	p := &pull{s: s, call: c, started: s.o.Now()}
	client, no := clientID(c)
	if no.given() {
		go p.refuse(no)
		return
	}
	if err := p.req.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	s.o.Clients.Heard(client, p.started)
	if no = p.check(); no.given() {
		go p.refuse(no)
		return
	}
	routes := s.o.Routes.Load()
	if g := routes.Group(p.req.Group.Name); g != nil {
		p.start(g)
		return
	}
	s.groupMissing(c, string(p.req.Group.Name), func(g *route.Group, err error) {
		if err != nil {
			go p.refuse(s.outcome(RPCPullMessage, err))
			return
		}
		p.start(g)
	})
}

// check checks a pull and fills in what to ask the broker for.
func (p *pull) check() refusal {
	if no := checkTopic(p.req.Queue.Topic.Name); no.given() {
		return no
	}
	if no := checkGroup(p.req.Group.Name); no.given() {
		return no
	}
	if no := checkOffset(p.req.Offset); no.given() {
		return no
	}
	filter, no := p.s.filterOf(&p.req.Filter)
	if no.given() {
		return no
	}
	p.out.Filter, p.out.Offset = filter, brokerapi.QueueOffset(p.req.Offset)
	p.out.Max, p.out.MaxBytes = min(max(int(p.req.BatchSize), 1), p.s.o.Limits.ReceiveBatch), p.s.o.Limits.ReceiveBytes
	p.times()
	if err := p.s.unread(); err != nil {
		return p.s.outcome(RPCPullMessage, err)
	}
	if err := p.s.pressed(); err != nil {
		return p.s.outcome(RPCPullMessage, err)
	}
	p.at, no = p.s.placeOf(RPCPullMessage, &p.req.Queue)
	return no
}

// times finds how long to wait at the end of the queue, not at all if the caller did not say, and when the
// answer must be there.
func (p *pull) times() {
	left := time.Duration(math.MaxInt64)
	limit := p.started.Add(p.s.o.Limits.PollMax + p.s.o.Limits.BrokerTimeout)
	if at, limited := p.call.Deadline(); limited {
		left = max(0, at.Sub(p.started)-pollMargin)
		if soon := p.started.Add(max(left, at.Sub(p.started)/2)); soon.Before(limit) {
			limit = soon
		}
	}
	p.out.Wait = max(0, min(p.req.LongPollingTimeout.Duration(), p.s.o.Limits.PollMax, left))
	p.out.Deadline = limit
}

// start asks the broker.
func (p *pull) start(g *route.Group) {
	p.out.Topic, p.out.Group, p.out.Queue = p.at.topic.ID, g.ID, p.at.queue
	if !p.s.pulls.add(p) {
		p.out.Wait = 0
	}
	stop := context.AfterFunc(p.call.Context(), func() {
		if p.end() {
			p.call.Fail(call.Cancelled, "the caller went away")
		}
	})
	var found *brokerapi.PullReply
	p.s.steadily(p.call, p.at.shard, func(h home, done func(error)) {
		if p.ended.Load() { // while it waited for a master
			done(mqerr.New(mqerr.Cancelled, "the caller went away"))
			return
		}
		out := p.out // the broker before may still look at its own
		out.Epoch = h.epoch
		h.broker.Pull(&out, func(reply *brokerapi.PullReply, err error) {
			found = reply
			done(err)
		})
	}, func(err error) {
		go func() { // a slow reader must not hold up the broker's goroutine
			stop()
			p.answer(found, err)
		}()
	})
}

// end reports whether the call was still open, and ends it: who gets true answers.
func (p *pull) end() bool {
	p.s.pulls.remove(p)
	return !p.ended.Swap(true)
}

// answer writes what the broker found.
func (p *pull) answer(reply *brokerapi.PullReply, err error) {
	switch {
	case !p.end():
		if err == nil {
			reply.Release()
		}
	case err != nil:
		p.refuse(p.s.outcome(RPCPullMessage, err))
	default:
		p.deliver(reply)
	}
}

// refuse answers with an error. It may wait for the reader.
func (p *pull) refuse(no refusal) {
	no.hint(p.call)
	_ = p.call.Send(statusReply(no))
	p.call.End()
}

// deliver writes status, messages and next offset. The broker's bytes are copied and let go first, so a
// slow reader holds on to its own messages only. No message is no failure: the next offset counts.
func (p *pull) deliver(reply *brokerapi.PullReply) {
	d := wire.Delivery{Topic: p.req.Queue.Topic.Bytes(), StoreHost: p.s.storeHost(p.call, p.at.shard)}
	parts, size := make([][]byte, 0, len(reply.Messages)+2), int64(0)
	parts = append(parts, okReply(0))
	for i := range reply.Messages {
		m := &reply.Messages[i]
		parts = append(parts, wire.AppendDelivery(make([]byte, 0, wire.DeliverySize(m, &d)), m, &d))
		size += int64(len(parts[i+1]))
	}
	parts = append(parts, wire.AppendNextOffset(make([]byte, 0, 11), int64(reply.Next)))
	reply.Release()

	unsent := &p.s.receives.unsent
	unsent.Add(size)
	late := time.AfterFunc(cmp.Or(p.s.receives.cutOff, sendTimeout), func() { p.call.Fail(call.Cancelled, "the messages were not read in time") })
	for i, part := range parts {
		parts[i] = nil // the transport's now
		if p.call.Send(part) != nil {
			break
		}
	}
	late.Stop()
	unsent.Add(-size)
	p.call.End()
}

// add takes a pull that may wait. It is false when the proxy is going away: no more may wait.
func (l *pulls) add(p *pull) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.drained {
		return false
	}
	if l.waiting == nil {
		l.waiting = map[*pull]struct{}{}
	}
	l.waiting[p] = struct{}{}
	return true
}

func (l *pulls) remove(p *pull) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, p)
}

// Drain answers every pull that waits, with no message and the offset that it asked for. Later ones do not
// wait.
func (s *Server) Drain() {
	l := &s.pulls
	l.mu.Lock()
	waiting := l.waiting
	l.waiting, l.drained = nil, true
	l.mu.Unlock()
	for p := range waiting {
		if p.end() {
			go p.deliver(&brokerapi.PullReply{Next: p.out.Offset})
		}
	}
}

// checkOffset refuses offsets that no message has.
func checkOffset(off int64) refusal {
	if off < 0 {
		return refuse(rmqv2.Code_ILLEGAL_OFFSET, "the offset is negative: a queue begins at 0")
	}
	return refusal{}
}
