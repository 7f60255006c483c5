package blackbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// place is a topic and a group of one test, with a ledger of what the server has promised. It is safe
// for concurrent use.
type place struct {
	t            *testing.T
	c            *client
	topic, group string

	mu     sync.Mutex        // guards what follows
	bodies map[string]string // of every message that may be stored, by message id
	stored map[string]bool   // whose send was answered OK
	done   map[string]bool   // whose ack was answered OK
	maybe  map[string]bool   // whose ack has an unknown outcome
	place  map[string]string // queue and offset at the first delivery
	last   map[string]int32  // attempt of the last delivery
}

var places atomic.Int64

// newPlace makes a topic of 4 queues with a group. At the end of the test it is emptied and checked.
func newPlace(t *testing.T, c *client) *place {
	t.Helper()
	return newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 4)
}

func newTyped(t *testing.T, c *client, typ controllerv1.TopicType, queues int32) *place {
	t.Helper()
	n := places.Add(1)
	p := &place{
		t: t, c: c, topic: fmt.Sprintf("topic-%d", n), group: fmt.Sprintf("group-%d", n),
		bodies: map[string]string{}, stored: map[string]bool{}, done: map[string]bool{}, maybe: map[string]bool{},
		place: map[string]string{}, last: map[string]int32{},
	}
	makeTopic(t, c, p.topic, typ, queues)
	makeGroup(t, c, p.group)
	t.Cleanup(p.settle)
	return p
}

func makeTopic(t *testing.T, c *client, name string, typ controllerv1.TopicType, queues int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.admin.PutTopic(ctx, &adminv1.PutTopicRequest{Topic: &controllerv1.PutTopicRequest{Name: name, Type: typ, Queues: queues}}); err != nil {
		t.Fatal(err)
	}
}

func makeGroup(t *testing.T, c *client, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.admin.PutGroup(ctx, &adminv1.PutGroupRequest{Group: &controllerv1.PutGroupRequest{Name: name}}); err != nil {
		t.Fatal(err)
	}
}

// message is a good message for the place, noted as one that may be stored.
func (p *place) message(body string) *rmqv2.Message {
	return p.note(&rmqv2.Message{
		Topic: &rmqv2.Resource{Name: p.topic}, Body: []byte(body),
		SystemProperties: &rmqv2.SystemProperties{
			MessageId: fmt.Sprintf("01%032X", places.Add(1)), MessageType: rmqv2.MessageType_NORMAL, BodyEncoding: rmqv2.Encoding_IDENTITY,
		},
	})
}

// note says that a message may be stored here.
func (p *place) note(m *rmqv2.Message) *rmqv2.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies[m.GetSystemProperties().GetMessageId()] = string(m.GetBody())
	return m
}

// send sends messages and notes those that were answered OK.
func (p *place) send(ctx context.Context, c *client, messages ...*rmqv2.Message) answer {
	for _, m := range messages {
		p.note(m)
	}
	a := c.do(ctx, "SendMessage", &rmqv2.SendMessageRequest{Messages: messages})
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, m := range messages {
		id := m.GetSystemProperties().GetMessageId()
		switch {
		case i < len(a.entries) && a.entries[i].GetCode() == rmqv2.Code_OK:
			p.stored[id] = true
		case a.code == codes.OK && decided(a.status) && !p.stored[id]:
			delete(p.bodies, id) // it must never come
		}
	}
	return a
}

// decided tells whether an answer says what has happened. PROXY_TIMEOUT is for what may have.
func decided(s *rmqv2.Status) bool { return s.GetCode() != rmqv2.Code_PROXY_TIMEOUT }

// put stores n messages, one call each.
func (p *place) put(n int) {
	p.t.Helper()
	for i := range n {
		p.send(p.t.Context(), p.c, p.message(fmt.Sprintf("body %d", i))).is(p.t, "OK")
	}
}

// receive makes one receive and notes what came.
func (p *place) receive(ctx context.Context, c *client, change func(*rmqv2.ReceiveMessageRequest)) answer {
	req := receiveRequest(p.topic, p.group)
	if change != nil {
		change(req)
	}
	a := c.do(ctx, "ReceiveMessage", req)
	p.seen(a.messages)
	return a
}

// seen checks messages against the ledger.
func (p *place) seen(messages []*rmqv2.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range messages {
		sys := m.GetSystemProperties()
		id := sys.GetMessageId()
		body, known := p.bodies[id]
		at := fmt.Sprintf("%s queue %d offset %d", sys.GetStoreHost(), sys.GetQueueId(), sys.GetQueueOffset())
		_, at, _ = strings.Cut(at, " ") // the broker may have moved
		switch first := p.place[id]; {
		case !known:
			p.t.Errorf("message %q came and was never sent", id)
		case body != string(m.GetBody()):
			p.t.Errorf("message %s came with another body", id)
		case p.done[id]:
			p.t.Errorf("message %s came after its ack was answered OK", id)
		case first != "" && first != at:
			p.t.Errorf("message %s moved from %s to %s", id, first, at)
		case sys.GetDeliveryAttempt() < p.last[id]:
			p.t.Errorf("message %s came with attempt %d after %d", id, sys.GetDeliveryAttempt(), p.last[id])
		}
		p.place[id], p.last[id] = at, sys.GetDeliveryAttempt()
	}
}

// take receives until it has n messages, and holds them for a minute.
func (p *place) take(n int) []*rmqv2.Message {
	p.t.Helper()
	return p.hold(p.c, n, time.Minute)
}

// hold receives until it has n messages.
func (p *place) hold(c *client, n int, lease time.Duration) []*rmqv2.Message {
	p.t.Helper()
	var got []*rmqv2.Message
	for end := time.Now().Add(40 * time.Second); len(got) < n; {
		a := p.receive(p.t.Context(), c, func(r *rmqv2.ReceiveMessageRequest) {
			r.BatchSize = int32(min(32, n-len(got)))
			invisible(lease)(r)
		})
		a.is(p.t, "OK|MESSAGE_NOT_FOUND")
		got = append(got, a.messages...)
		if time.Now().After(end) {
			p.t.Fatalf("only %d of %d messages came", len(got), n)
		}
	}
	return got
}

// ack acknowledges messages and notes the answers.
func (p *place) ack(ctx context.Context, c *client, messages []*rmqv2.Message) answer {
	req := ackRequest(p.topic, p.group, messages...)
	p.mu.Lock()
	for _, e := range req.GetEntries() {
		p.maybe[e.GetMessageId()] = true
	}
	p.mu.Unlock()
	a := c.do(ctx, "AckMessage", req)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, e := range a.entries {
		id := req.GetEntries()[i].GetMessageId()
		if decided(e) {
			delete(p.maybe, id)
		}
		if e.GetCode() == rmqv2.Code_OK {
			p.done[id] = true
		}
	}
	return a
}

// finish acknowledges messages, which must succeed.
func (p *place) finish(messages []*rmqv2.Message) {
	p.t.Helper()
	p.ack(p.t.Context(), p.c, messages).is(p.t, "OK")
}

// settle empties the place and compares the server with the ledger: what was answered OK is there once,
// what was acknowledged is gone, and no lease is left over.
func (p *place) settle() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), time.Minute)
	defer cancel()
	open := p.open(ctx)
	for open != 0 && ctx.Err() == nil {
		a := p.receive(ctx, p.c, nil)
		if a.is(p.t, "OK|MESSAGE_NOT_FOUND"); len(a.messages) > 0 {
			p.ack(ctx, p.c, a.messages).is(p.t, "OK")
		}
		if open = p.open(ctx); p.t.Failed() {
			return // one fault is enough
		}
	}
	if open != 0 {
		p.t.Errorf("group %s: %d messages are neither done nor delivered", p.group, open)
		return
	}
	length := p.length(ctx)
	if p.t.Failed() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := maps.Clone(p.done)
	for id := range p.maybe {
		if p.last[id] > 0 {
			gone[id] = true
		}
	}
	for id := range p.stored {
		if !gone[id] {
			p.t.Errorf("message %s was stored and is lost", id)
		}
	}
	if length != int64(len(gone)) {
		p.t.Errorf("topic %s holds %d messages, %d were seen", p.topic, length, len(gone))
	}
}

// open is how many messages of the place are not done: ready, leased or waiting.
func (p *place) open(ctx context.Context) int64 {
	g := p.state(ctx)
	return g.GetReady() + g.GetInFlight() + g.GetWaiting()
}

// state is what the server says of the group.
func (p *place) state(ctx context.Context) *adminv1.GroupTopic {
	d, err := p.c.admin.DescribeGroup(ctx, &adminv1.DescribeGroupRequest{Name: p.group, Topic: p.topic})
	if err != nil {
		p.t.Errorf("describing group %s: %v", p.group, err)
		return nil
	}
	if len(d.GetUnknown()) > 0 {
		p.t.Errorf("group %s: %v", p.group, d.GetUnknown())
	}
	if len(d.GetTopics()) == 0 {
		return nil
	}
	return d.GetTopics()[0]
}

// length is how many messages the topic has.
func (p *place) length(ctx context.Context) (n int64) {
	d, err := p.c.admin.DescribeTopic(ctx, &adminv1.DescribeTopicRequest{Name: p.topic})
	if err != nil {
		p.t.Errorf("describing topic %s: %v", p.topic, err)
	}
	for _, q := range d.GetQueues() {
		n += q.GetMax()
	}
	return n
}

// idsOf returns the message ids, sorted.
func idsOf(messages []*rmqv2.Message) []string {
	var ids []string
	for _, m := range messages {
		ids = append(ids, m.GetSystemProperties().GetMessageId())
	}
	slices.Sort(ids)
	return ids
}
