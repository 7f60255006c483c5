package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Rules say what is to hold beside what always does.
type Rules struct {
	// OneHome: a message that is sent again under its id is stored once, whatever became of the tries.
	// Otherwise each try may have stored it.
	OneHome bool
	// Slack is how far two clocks may be apart.
	Slack Time
	// Stale is how old a list of topics or groups may be: a controller that follows shows what it was shown last.
	Stale Time
	// Letters are the topics of dead letters, by the topic whose messages go there.
	Letters map[string]string
	// Retention: what every group has done with goes, so a pull may find that something is missing.
	Retention bool
	// Drained says that every group of Reads has received until nothing came, and that all that is stored
	// was read besides.
	Drained bool
	Reads   []Sub
}

// Sub is a group that reads a topic to its end.
type Sub struct{ Group, Topic string }

// Violation is a promise that was broken.
type Violation struct{ Rule, Text string }

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// violationsMax is how many violations of one rule are told.
const violationsMax = 10

// Check returns the promises that a history breaks.
func Check(ops []Op, rules Rules) []Violation {
	c := newChecker(rules)
	for i := range ops {
		c.index(&ops[i])
	}
	c.link()
	c.places()
	c.visible()
	c.leases()
	c.order()
	c.resets()
	c.offsets()
	c.names()
	if rules.Drained {
		c.drained()
	}
	return c.bad
}

// name is a message: ids may repeat in different topics.
type name struct{ topic, id string }

// message is what is known of one message.
type message struct {
	name
	body, key string
	due       Time
	tries     []try
	recalls   []*Op
	commits   []*Op
	rollbacks []*Op
	places    []Place // where it was seen, in its topic
	mates     []name  // sent in the same call
}

// try is one send of a message.
type try struct {
	op   *Op
	item *Item
}

// track is what one group did with what is stored at one place.
type track struct {
	group      string
	place      Place
	deliveries []*delivery
}

// delivery is one time that a message came.
type delivery struct {
	op      *Op
	item    *Item
	message *message // nil: it was never sent
	track   *track
	ends    []use // acks and forwards with its handle
	changes []use
}

// use is a call with a handle.
type use struct {
	op   *Op
	item *Item
}

type trackKey struct {
	group string
	place Place
}

type checker struct {
	rules    Rules
	all      map[Kind][]*Op
	messages map[name]*message
	sent     []*message // in the order of their first tries
	tracks   map[trackKey]*track
	byLease  map[int]*delivery
	came     []*delivery
	pulled   []*delivery
	at       map[Place]string // id
	origin   map[string]string
	resetsOf map[Sub][]*Op
	told     map[string]int
	bad      []Violation
}

func newChecker(r Rules) *checker {
	c := &checker{
		rules: r, all: map[Kind][]*Op{}, messages: map[name]*message{}, tracks: map[trackKey]*track{}, byLease: map[int]*delivery{},
		at: map[Place]string{}, origin: map[string]string{}, resetsOf: map[Sub][]*Op{}, told: map[string]int{},
	}
	for from, letters := range r.Letters {
		c.origin[letters] = from
	}
	return c
}

func (c *checker) violate(rule, format string, args ...any) {
	if c.told[rule]++; c.told[rule] <= violationsMax {
		c.bad = append(c.bad, Violation{rule, fmt.Sprintf(format, args...)})
	}
}

// index files one call.
func (c *checker) index(op *Op) {
	c.all[op.Kind] = append(c.all[op.Kind], op)
	switch op.Kind {
	case Send:
		c.indexSend(op)
	case Reset:
		c.resetsOf[Sub{op.Group, op.Topic}] = append(c.resetsOf[Sub{op.Group, op.Topic}], op)
	case Recall, Commit, Rollback:
		for i := range op.Items {
			m := c.message(op.Topic, op.Items[i].ID)
			switch op.Kind {
			case Recall:
				m.recalls = append(m.recalls, op)
			case Commit:
				m.commits = append(m.commits, op)
			default:
				m.rollbacks = append(m.rollbacks, op)
			}
		}
	}
}

func (c *checker) indexSend(op *Op) {
	var mates []name
	for i := range op.Items {
		it := &op.Items[i]
		m := c.message(op.Topic, it.ID)
		m.body, m.key, m.due = it.Body, it.Key, it.Due
		m.tries = append(m.tries, try{op, it})
		mates = append(mates, m.name)
	}
	for _, n := range mates {
		c.messages[n].mates = mates
	}
}

func (c *checker) message(topic, id string) *message {
	n := name{topic, id}
	m := c.messages[n]
	if m == nil {
		m = &message{name: n}
		c.messages[n] = m
		c.sent = append(c.sent, m)
	}
	return m
}

// link brings deliveries together with their messages and with what was done with them.
func (c *checker) link() {
	for _, op := range c.all[Receive] {
		for i := range op.Items {
			d := c.delivery(op, &op.Items[i])
			k := trackKey{op.Group, d.item.Place}
			if c.tracks[k] == nil {
				c.tracks[k] = &track{group: op.Group, place: d.item.Place}
			}
			d.track = c.tracks[k]
			d.track.deliveries = append(d.track.deliveries, d)
			c.byLease[d.item.Lease] = d
			c.came = append(c.came, d)
		}
	}
	for _, op := range c.all[Pull] {
		for i := range op.Items {
			c.pulled = append(c.pulled, c.delivery(op, &op.Items[i]))
		}
	}
	for _, kind := range []Kind{Ack, Forward, Change} {
		for _, op := range c.all[kind] {
			for i := range op.Items {
				d := c.byLease[op.Items[i].Lease]
				switch {
				case d == nil:
				case kind == Change:
					d.changes = append(d.changes, use{op, &op.Items[i]})
				default:
					d.ends = append(d.ends, use{op, &op.Items[i]})
				}
			}
		}
	}
	for _, t := range c.tracks {
		slices.SortStableFunc(t.deliveries, func(a, b *delivery) int { return cmp.Compare(a.item.At, b.item.At) })
	}
}

func (c *checker) delivery(op *Op, it *Item) *delivery {
	topic := it.Place.Topic
	if from, is := c.origin[topic]; is {
		topic = from
	}
	return &delivery{op: op, item: it, message: c.messages[name{topic, it.ID}]}
}

// letter tells whether a delivery is one of a dead letter.
func (c *checker) letter(d *delivery) bool {
	_, is := c.origin[d.item.Place.Topic]
	return is
}
