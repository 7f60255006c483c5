package membroker

import (
	"context"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// DescribeTopic shows a topic.
func (s *session) DescribeTopic(ctx context.Context, id brokerapi.TopicID) ([]brokerapi.TopicQueue, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.usable(nil); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, mqerr.New(mqerr.Cancelled, "gave up: %w", ctx.Err())
	}
	t, err := s.topic(id)
	if err != nil {
		return nil, err
	}
	var out []brokerapi.TopicQueue
	for q, all := range t.queues {
		one := brokerapi.TopicQueue{Queue: brokerapi.QueueID(q), Max: brokerapi.QueueOffset(len(all))}
		if len(all) > 0 {
			one.LastMS = all[len(all)-1].time
		}
		out = append(out, one)
	}
	return out, nil
}

// DescribeGroup shows a group on a topic.
func (s *session) DescribeGroup(ctx context.Context, id brokerapi.TopicID, group brokerapi.GroupID) ([]brokerapi.GroupQueue, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if err := s.usable(nil); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, mqerr.New(mqerr.Cancelled, "gave up: %w", ctx.Err())
	}
	t, u, err := s.sub(id, group)
	if err != nil {
		return nil, err
	}
	var out []brokerapi.GroupQueue
	for q := range t.queues {
		out = append(out, s.b.groupQueue(t, u, q, time.Now()))
	}
	return out, nil
}

func (b *Broker) groupQueue(t *topic, u *sub, q int, now time.Time) brokerapi.GroupQueue {
	all, items := t.queues[q], u.items[q]
	out := brokerapi.GroupQueue{
		Queue: brokerapi.QueueID(q), Max: brokerapi.QueueOffset(len(all)), Next: brokerapi.QueueOffset(len(items)), Used: len(items) > 0,
	}
	oldest := -1
	floor := 0
	for i := range items {
		it := &items[i]
		if it.done {
			if i == floor {
				floor++
			}
			continue
		}
		if b.until(it).After(now) {
			out.InFlight++
			continue
		}
		out.Ready++
		if oldest < 0 {
			oldest = i
		}
	}
	out.Floor = brokerapi.QueueOffset(floor)
	out.Ready += int64(len(all) - len(items))
	if oldest < 0 && len(items) < len(all) {
		oldest = len(items)
	}
	if oldest >= 0 {
		out.OldestMS = all[oldest].time
	}
	return out
}
