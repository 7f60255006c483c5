package state

import (
	"fmt"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TopicType is what a topic accepts; the numbers are those of perigee.controller.v1.TopicType.
type TopicType uint8

// Topic types.
const (
	Normal      TopicType = 1
	FIFO        TopicType = 2
	Delay       TopicType = 3
	Transaction TopicType = 4
	Lite        TopicType = 5
	Priority    TopicType = 6
	Mixed       TopicType = 7
)

var typeNames = [...]string{"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "LITE", "PRIORITY", "MIXED"}

// String returns the public name.
func (t TopicType) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("TYPE(%d)", uint8(t))
}

// fixed reports whether a topic of this type keeps its type and its queues for ever: something in it
// (a message group, a lite topic) lives in one queue, chosen over the list of queues.
func (t TopicType) fixed() bool { return t == FIFO || t == Mixed || t == Lite }

// more says what can be done for more queues of a topic that keeps what it has.
func (t TopicType) more() string {
	if t == Lite {
		return "; make a new topic"
	}
	return " unless it is drained first: use perigee topic grow"
}

// Flush is when a message counts as stored; the numbers are those of perigee.controller.v1.FlushPolicy.
type Flush uint8

// Flush policies.
const (
	FlushDefault Flush = 0 // the broker's own
	FlushSync    Flush = 1
	FlushAsync   Flush = 2
)

// Mode says what a put does when the name exists or not; the numbers are those of
// perigee.controller.v1.PutMode.
type Mode uint8

// Modes.
const (
	Create Mode = 0 // an equal one that exists is an answer, a different one is refused
	Upsert Mode = 1 // create or change
	Update Mode = 2 // change; a missing one is refused
	Ensure Mode = 3 // create; one that exists is an answer, however it is
)

// QueuesDefault is the number of queues of a topic that asks for none.
const QueuesDefault = 8

// Topic is the definition of a topic.
type Topic struct {
	ID         TopicID     `json:"id"`
	Name       string      `json:"name"`
	Type       TopicType   `json:"type"`
	Flush      Flush       `json:"flush,omitempty"`
	Placements []Placement `json:"placements"` // by shard, at least one
	Limits     Limits      `json:"limits,omitzero"`
	// Layout is the version at which message groups last got another home: the end of a growth. 0: never.
	Layout    Version  `json:"layout,omitempty"`
	Growing   *Growing `json:"growing,omitempty"`
	Version   Version  `json:"version"` // of the last change
	Created   Version  `json:"created"`
	CreatedMS int64    `json:"created_ms"` // ms since 1970
}

// Queues is the number of queues over all shards.
func (t *Topic) Queues() int {
	n := 0
	for _, p := range t.Placements {
		n += p.Queues
	}
	return n
}

// Asked is the number of queues as an operator states it: the levels of a PRIORITY topic, which are on
// every shard, else all queues.
func (t *Topic) Asked() int {
	if t.Type == Priority && len(t.Placements) > 0 {
		return t.Placements[0].Queues
	}
	return t.Queues()
}

// On returns the number of queues on a shard, 0 if the topic is not there.
func (t *Topic) On(shard ShardID) int {
	for _, p := range t.Placements {
		if p.Shard == shard {
			return p.Queues
		}
	}
	return 0
}

func (t *Topic) check(s *State) error {
	if len(t.Placements) == 0 {
		return fmt.Errorf("topic %q is nowhere", t.Name)
	}
	for i, p := range t.Placements {
		if p.Queues < 1 || p.Queues > QueuesMax || s.shards[p.Shard] == nil || i > 0 && t.Placements[i-1].Shard >= p.Shard {
			return fmt.Errorf("topic %q: wrong placement on shard %d", t.Name, p.Shard)
		}
	}
	if t.Type < Normal || t.Type > Mixed {
		return fmt.Errorf("topic %q has the unknown type %d", t.Name, t.Type)
	}
	if err := t.Growing.check(t); err != nil {
		return err
	}
	return t.Limits.check(t)
}

// PutTopic creates or changes a topic. Zero fields keep what is there, or mean the default. The
// queues of a new topic are spread over the shards that exist at that moment: a shard that joins
// later serves only topics that are created, or given more queues, later.
type PutTopic struct {
	Name   string       `json:"name"`
	Type   TopicType    `json:"type,omitempty"`
	Queues int          `json:"queues,omitempty"` // total over all shards; of a PRIORITY topic, on each shard
	Flush  Flush        `json:"flush,omitempty"`
	Limits LimitsChange `json:"limits,omitzero"`
	Mode   Mode         `json:"mode,omitempty"`
	// Most is how many topics there may be for one to be created; 0: TopicsMax.
	Most  int   `json:"most,omitempty"`
	NowMS int64 `json:"now_ms"`
}

func (PutTopic) op() string { return "put_topic" }

// Validate refuses what no state could accept.
func (c PutTopic) Validate() error {
	if err := CheckTopicName(c.Name); err != nil {
		return err
	}
	switch {
	case c.Type > Mixed:
		return mqerr.New(mqerr.Invalid, "topic %q: unknown type %d", c.Name, c.Type)
	case c.Flush > FlushAsync:
		return mqerr.New(mqerr.Invalid, "topic %q: unknown flush policy %d", c.Name, c.Flush)
	case c.Mode > Ensure:
		return mqerr.New(mqerr.Invalid, "topic %q: unknown mode %d", c.Name, c.Mode)
	case c.Queues < 0 || c.Queues > QueuesMax:
		return mqerr.New(mqerr.Invalid, "topic %q: %d queues asked for, 1 to %d are possible", c.Name, c.Queues, QueuesMax)
	}
	return c.Limits.validate(c.Name)
}

func (c PutTopic) apply(s *State, index Version) (Result, []Event) {
	if err := c.Validate(); err != nil {
		return Result{Err: err}, nil
	}
	have := s.Topic(c.Name)
	switch {
	case have == nil && c.Mode == Update:
		return refuse(mqerr.TopicNotFound, "topic %q does not exist", c.Name)
	case have == nil:
		return c.create(s, index)
	case c.Mode == Ensure:
		return Result{Topic: have}, nil
	}
	next, err := c.changed(s, have, index)
	switch {
	case err != nil:
		return Result{Err: err}, nil
	case next == nil:
		return Result{Topic: have}, nil
	case c.Mode == Create:
		return refuse(mqerr.Exists, "topic %q exists and differs (type %v, %d queues): update it instead", c.Name, have.Type, have.Asked())
	}
	s.topics[have.ID] = next
	s.definitions = index
	return Result{Topic: next, Changed: true}, []Event{TopicPut{next}}
}

func (c PutTopic) create(s *State, index Version) (Result, []Event) {
	if len(s.shards) == 0 {
		return refuse(mqerr.Unavailable, "topic %q can't be created: no broker has registered yet; start one and try again", c.Name)
	}
	if err := s.topicRoom(c.Name, c.Most); err != nil {
		return Result{Err: err}, nil
	}
	t := &Topic{
		ID: s.nextTopic, Name: c.Name, Type: c.Type, Flush: c.Flush, Limits: c.Limits.over(Limits{}),
		Version: index, Created: index, CreatedMS: c.NowMS,
	}
	if t.Type == 0 {
		t.Type = Normal
	}
	if err := t.Limits.fit(t.Name, t.Type); err != nil {
		return Result{Err: err}, nil
	}
	queues := c.Queues
	if queues == 0 {
		queues = QueuesDefault
	}
	t.Placements = t.place(nil, queues, s.Shards())
	s.nextTopic++
	s.topics[t.ID], s.topicNames[t.Name] = t, t.ID
	s.definitions = index
	return Result{Topic: t, Created: true}, []Event{TopicPut{t}}
}

// changed returns the topic as asked for, nil if it is so already. With mode Create it need only
// tell whether there is a difference, whatever it is.
func (c PutTopic) changed(s *State, have *Topic, index Version) (*Topic, error) {
	next := *have
	next.Version, next.Limits = index, c.Limits.over(have.Limits)
	if c.Type != 0 {
		next.Type = c.Type
	}
	if c.Flush != FlushDefault {
		next.Flush = c.Flush
	}
	grow := c.Queues != 0 && c.Queues != have.Asked()
	if next.Type == have.Type && next.Flush == have.Flush && next.Limits == have.Limits && !grow {
		return nil, nil
	}
	if c.Mode == Create {
		return &next, nil
	}
	if err := next.Limits.fit(c.Name, next.Type); err != nil {
		return nil, err
	}
	switch {
	case next.Type != have.Type && have.Type.fixed():
		return nil, mqerr.New(mqerr.Invalid, "topic %q has the type %v, which can't be changed: make a new topic", c.Name, have.Type)
	case next.Type != have.Type && (next.Type == FIFO || next.Type == Lite || next.Type == Priority):
		return nil, mqerr.New(mqerr.Invalid, "topic %q has the type %v and can't become %v: make a new topic", c.Name, have.Type, next.Type)
	case next.Type != have.Type && have.Type == Priority && grow:
		return nil, mqerr.New(mqerr.Invalid, "topic %q has levels: change its type first, then its queues", c.Name)
	case grow && c.Queues < have.Asked():
		return nil, mqerr.New(mqerr.Invalid, "topic %q has %d queues and can't have fewer: messages may be in all of them", c.Name, have.Asked())
	case grow && have.Type.fixed():
		return nil, mqerr.New(mqerr.Invalid, "topic %q has the type %v and keeps its %d queues: more would break the order within message groups%s", c.Name, have.Type, have.Queues(), have.Type.more())
	case grow:
		next.Placements = next.place(have.Placements, c.Queues, s.Shards())
	}
	return &next, nil
}

// DeleteTopic deletes a topic. Its id is never used again.
type DeleteTopic struct {
	Name string `json:"name"`
}

func (DeleteTopic) op() string { return "delete_topic" }

func (c DeleteTopic) apply(s *State, index Version) (Result, []Event) {
	t := s.Topic(c.Name)
	if t == nil {
		return refuse(mqerr.TopicNotFound, "topic %q does not exist", c.Name)
	}
	delete(s.topics, t.ID)
	delete(s.topicNames, t.Name)
	s.definitions = index
	return Result{Topic: t, Changed: true}, []Event{TopicDeleted{Topic: t, Version: index}}
}
