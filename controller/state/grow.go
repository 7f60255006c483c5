package state

import (
	"fmt"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// GrowMaxMS bounds how long a topic may take no messages with a message group while it grows.
const GrowMaxMS = 24 * 3600 * 1000

// Growing says that a topic is about to get more queues. Its brokers refuse messages with a message group
// from the moment on at which they have logged it, so what such groups have left to do ends some time.
type Growing struct {
	Queues  int     `json:"queues"` // in all, when it is over
	Began   Version `json:"began"`  // names this growth
	UntilMS int64   `json:"until_ms"`
}

// GrowStep is a step of the growth of a topic; the numbers are those of perigee.controller.v1.GrowStep.
type GrowStep uint8

// Steps.
const (
	GrowBegin  GrowStep = 0 // messages with a message group are refused; the same again may only make it last longer
	GrowFinish GrowStep = 1 // nothing of a message group is left: the queues are there
	GrowAbort  GrowStep = 2 // everything is as it was before
)

// GrowTopic gives more queues to a topic with message groups, in two steps: a message group lives in the
// queue that its hash chooses from all, so nothing of any group may be left when there are more. That this
// is so is for the caller to know.
type GrowTopic struct {
	Name   string   `json:"name"`
	Step   GrowStep `json:"step,omitempty"`
	Queues int      `json:"queues,omitempty"` // of GrowBegin: in all, over all shards
	// Began names the growth to finish; to abort: 0 for whichever there is.
	Began Version `json:"began,omitempty"`
	// UntilMS is, of GrowBegin, when it is given up, ms since 1970; of GrowAbort, 0 or the latest end of a
	// growth to give up: one that somebody has made last longer goes on.
	UntilMS int64 `json:"until_ms,omitempty"`
}

func (GrowTopic) op() string { return "grow_topic" }

// Validate refuses what no state could accept.
func (c GrowTopic) Validate() error {
	if err := CheckTopicName(c.Name); err != nil {
		return err
	}
	switch {
	case c.Step > GrowAbort:
		return mqerr.New(mqerr.Invalid, "topic %q: unknown step %d of growth", c.Name, c.Step)
	case c.Step == GrowBegin && (c.Queues < 1 || c.Queues > QueuesMax):
		return mqerr.New(mqerr.Invalid, "topic %q: %d queues asked for, 1 to %d are possible", c.Name, c.Queues, QueuesMax)
	case c.UntilMS < 0 || c.Step == GrowBegin && c.UntilMS == 0:
		return mqerr.New(mqerr.Invalid, "topic %q: growth needs a time at which it is given up", c.Name)
	}
	return nil
}

func (c GrowTopic) apply(s *State, index Version) (Result, []Event) {
	if err := c.Validate(); err != nil {
		return Result{Err: err}, nil
	}
	have := s.Topic(c.Name)
	if have == nil {
		return refuse(mqerr.TopicNotFound, "topic %q does not exist", c.Name)
	}
	var next *Topic
	var err error
	switch c.Step {
	case GrowFinish:
		next, err = c.finish(s, have, index)
	case GrowAbort:
		next = c.abort(have)
	default:
		next, err = c.begin(have, index)
	}
	switch {
	case err != nil:
		return Result{Err: err}, nil
	case next == nil:
		return Result{Topic: have}, nil
	}
	next.Version = index
	s.topics[have.ID] = next
	s.definitions = index
	return Result{Topic: next, Changed: true}, []Event{TopicPut{next}}
}

// begin returns the topic as it grows, nil if it has the queues or grows already for as long.
func (c GrowTopic) begin(have *Topic, index Version) (*Topic, error) {
	switch {
	case have.Type == Lite:
		return nil, mqerr.New(mqerr.Invalid, "topic %q has the type LITE and keeps its %d queues: a lite topic is looked for where the hash of its name over them says, as long as it lives; make a new topic", c.Name, have.Queues())
	case have.Type == Priority:
		return nil, mqerr.New(mqerr.Invalid, "topic %q has the type PRIORITY: its queues are levels and have no message groups; use perigee topic update --queues", c.Name)
	case have.Type != FIFO && have.Type != Mixed:
		return nil, mqerr.New(mqerr.Invalid, "topic %q has the type %v, which has no message groups: nothing needs to wait; use perigee topic update --queues", c.Name, have.Type)
	case c.Queues < have.Queues():
		return nil, mqerr.New(mqerr.Invalid, "topic %q has %d queues and can't have fewer: messages may be in all of them", c.Name, have.Queues())
	case have.Growing != nil && have.Growing.Queues != c.Queues:
		return nil, mqerr.New(mqerr.Exists, "topic %q is growing to %d queues already: wait for that, or abort it", c.Name, have.Growing.Queues)
	case have.Growing == nil && c.Queues == have.Queues(), have.Growing != nil && have.Growing.UntilMS >= c.UntilMS:
		return nil, nil
	}
	next, growing := *have, Growing{Queues: c.Queues, Began: index, UntilMS: c.UntilMS}
	if have.Growing != nil {
		growing.Began = have.Growing.Began
	}
	next.Growing = &growing
	return &next, nil
}

// finish returns the topic with its queues.
func (c GrowTopic) finish(s *State, have *Topic, index Version) (*Topic, error) {
	if have.Growing == nil || have.Growing.Began != c.Began {
		return nil, mqerr.New(mqerr.NotFound, "the growth of topic %q was given up meanwhile, or is over", c.Name)
	}
	next := *have
	next.Placements = next.place(have.Placements, have.Growing.Queues, s.Shards())
	next.Layout, next.Growing = index, nil
	return &next, nil
}

// abort returns the topic as it was, nil if there is nothing to give up.
func (c GrowTopic) abort(have *Topic) *Topic {
	g := have.Growing
	if g == nil || c.Began != 0 && c.Began != g.Began || c.UntilMS != 0 && g.UntilMS > c.UntilMS {
		return nil
	}
	next := *have
	next.Growing = nil
	return &next
}

// Overdue are the steps that give up what has grown for longer than it may.
func (s *State) Overdue(nowMS int64) []GrowTopic {
	var out []GrowTopic
	for _, t := range s.topics {
		if g := t.Growing; g != nil && g.UntilMS < nowMS {
			out = append(out, GrowTopic{Name: t.Name, Step: GrowAbort, Began: g.Began, UntilMS: g.UntilMS})
		}
	}
	return out
}

func (g *Growing) check(t *Topic) error {
	if g != nil && (g.Queues <= t.Queues() || g.Queues > QueuesMax || g.Began == 0 || t.Type != FIFO && t.Type != Mixed) {
		return fmt.Errorf("topic %q of type %v and %d queues can't grow to %d", t.Name, t.Type, t.Queues(), g.Queues)
	}
	return nil
}
