package clients

import (
	"slices"
	"time"
)

// producedMax bounds the topics that are remembered of one producer.
const producedMax = 1024

// producers are the clients that send transactions to topics, with what they declared and what they sent.
// Guarded by Table.mu.
type producers struct {
	byTopic map[string]*ring
	changed chan struct{} // holds a token when topics came or went
}

// ring is the producers of a topic that have a stream, and whose turn it is.
type ring struct {
	clients []*client
	turn    int
}

func newProducers() producers {
	return producers{byTopic: map[string]*ring{}, changed: make(chan struct{}, 1)}
}

func (p *producers) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// add notes that a client produces to a topic.
func (p *producers) add(c *client, topic string) {
	if _, has := c.produces[topic]; has || len(c.produces) >= producedMax {
		return
	}
	if c.produces == nil {
		c.produces = map[string]struct{}{}
	}
	c.produces[topic] = struct{}{}
	if c.listed {
		p.join(topic, c)
	}
}

// list puts a client that has a stream into the rings of its topics, and takes one that has none out.
func (p *producers) list(c *client, listed bool) {
	if c.listed == listed {
		return
	}
	c.listed = listed
	for topic := range c.produces {
		if listed {
			p.join(topic, c)
		} else {
			p.leave(topic, c)
		}
	}
}

func (p *producers) join(topic string, c *client) {
	r := p.byTopic[topic]
	if r == nil {
		r = &ring{}
		p.byTopic[topic] = r
		p.tell()
	}
	r.clients = append(r.clients, c)
}

func (p *producers) leave(topic string, c *client) {
	r := p.byTopic[topic]
	r.clients = slices.DeleteFunc(r.clients, func(o *client) bool { return o == c })
	if len(r.clients) == 0 {
		delete(p.byTopic, topic)
		p.tell()
	}
}

// drop takes a client out that is forgotten.
func (p *producers) drop(c *client) {
	if c != nil {
		p.list(c, false)
	}
}

// Produced notes that a client has sent a transaction to a topic: clients need not declare the topics that
// they send to.
func (t *Table) Produced(id, topic string, now time.Time) {
	t.mu.RLock()
	c := t.clients[id]
	known := false
	if c != nil {
		_, known = c.produces[topic]
	}
	t.mu.RUnlock()
	if known {
		c.touch(t.ms(now))
		return
	}
	t.with(id, now, func(c *client) { t.producers.add(c, topic) })
}

// ProducedTopics lists the topics that have a producer with a stream, sorted.
func (t *Table) ProducedTopics() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	topics := make([]string, 0, len(t.producers.byTopic))
	for topic := range t.producers.byTopic {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	return topics
}

// ProducersChanged holds a token when ProducedTopics may give something else than before. There is one
// reader.
func (t *Table) ProducersChanged() <-chan struct{} { return t.producers.changed }

// ProducerStreams returns streams of at most max producers of a topic, the newest stream of each: the one
// whose turn it is first.
func (t *Table) ProducerStreams(topic string, max int) []Stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.producers.byTopic[topic]
	if r == nil {
		return nil
	}
	r.turn = (r.turn + 1) % len(r.clients)
	var out []Stream
	for i := range min(max, len(r.clients)) {
		c := r.clients[(r.turn+i)%len(r.clients)]
		out = append(out, c.streams[len(c.streams)-1])
	}
	return out
}
