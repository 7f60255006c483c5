package state

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// EnsureTopic makes a topic of the brokers' own with one queue on a shard, or gives one that exists its
// queue there. A topic that has it is an answer.
type EnsureTopic struct {
	Name  string  `json:"name"`
	Shard ShardID `json:"shard"`
	NowMS int64   `json:"now_ms"`
}

func (EnsureTopic) op() string { return "ensure_topic" }

// Validate refuses what no state could accept.
func (c EnsureTopic) Validate() error { return checkOwnTopic(c.Name) }

func (c EnsureTopic) apply(s *State, index Version) (Result, []Event) {
	if err := c.Validate(); err != nil {
		return Result{Err: err}, nil
	}
	if s.shards[c.Shard] == nil {
		return refuse(mqerr.NotFound, "topic %q can't be created on broker group %d, which does not exist", c.Name, c.Shard)
	}
	have := s.Topic(c.Name)
	switch {
	case have == nil:
		return c.create(s, index)
	case have.On(c.Shard) > 0:
		return Result{Topic: have}, nil
	case have.Type.fixed():
		return refuse(mqerr.Invalid, "topic %q has the type %v and keeps its queues, but broker group %d needs one there: delete the topic", c.Name, have.Type, c.Shard)
	}
	next := *have
	next.Version = index
	next.Placements = append(slices.Clone(have.Placements), Placement{Shard: c.Shard, Queues: 1})
	slices.SortFunc(next.Placements, func(a, b Placement) int { return int(int64(a.Shard) - int64(b.Shard)) })
	s.topics[have.ID] = &next
	s.definitions = index
	return Result{Topic: &next, Changed: true}, []Event{TopicPut{&next}}
}

func (c EnsureTopic) create(s *State, index Version) (Result, []Event) {
	if err := s.topicRoom(c.Name, 0); err != nil {
		return Result{Err: err}, nil
	}
	t := &Topic{
		ID: s.nextTopic, Name: c.Name, Type: Normal, Placements: []Placement{{Shard: c.Shard, Queues: 1}},
		Version: index, Created: index, CreatedMS: c.NowMS,
	}
	s.nextTopic++
	s.topics[t.ID], s.topicNames[t.Name] = t, t.ID
	s.definitions = index
	return Result{Topic: t, Created: true}, []Event{TopicPut{t}}
}
