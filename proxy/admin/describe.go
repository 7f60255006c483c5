package admin

import (
	"context"
	"fmt"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

// DescribeTopic shows one topic with its queues.
func (s *Server) DescribeTopic(ctx context.Context, req *adminv1.DescribeTopicRequest) (*adminv1.DescribeTopicResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	resp := &adminv1.DescribeTopicResponse{}
	for _, t := range d.GetTopics() {
		if t.GetName() == req.GetName() {
			resp.Topic = t
		}
	}
	if resp.Topic == nil {
		return nil, rpc.ToStatus(mqerr.New(mqerr.TopicNotFound, "there is no topic %s: see perigee topic list", req.GetName()))
	}
	routes, r := s.o.Routes.Load(), s.round()
	for _, p := range resp.GetTopic().GetPlacements() {
		shard := brokerapi.ShardID(p.GetShard())
		var queues []brokerapi.TopicQueue
		err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) (err error) {
			if queues, err = b.DescribeTopic(ctx, brokerapi.TopicID(resp.GetTopic().GetId())); err != nil {
				return err
			}
			return countLite(ctx, b, resp.GetTopic(), resp)
		})
		if err != nil {
			resp.Unknown = append(resp.Unknown, fmt.Sprintf("broker %s: %v", s.shardName(routes, shard), err))
			continue
		}
		for _, q := range queues {
			row := &adminv1.TopicQueue{Broker: s.shardName(routes, shard), Queue: int32(q.Queue), Min: int64(q.Min), Max: int64(q.Max)}
			if q.LastMS != 0 {
				row.LastMs = &q.LastMS
			}
			resp.Queues = append(resp.Queues, row)
		}
	}
	return resp, nil
}

// DescribeGroup shows one group with its progress on every topic that it reads, or on the one asked
// for.
func (s *Server) DescribeGroup(ctx context.Context, req *adminv1.DescribeGroupRequest) (*adminv1.DescribeGroupResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	resp := &adminv1.DescribeGroupResponse{}
	for _, g := range d.GetGroups() {
		if g.GetName() == req.GetName() {
			resp.Group = g
		}
	}
	if resp.Group == nil {
		return nil, rpc.ToStatus(mqerr.New(mqerr.GroupNotFound, "there is no group %s: see perigee group list", req.GetName()))
	}
	topics, err := s.topicsOf(d, req.GetTopic())
	if err != nil {
		return nil, err
	}
	routes, r := s.o.Routes.Load(), s.round()
	for _, t := range topics {
		row, unknown := s.groupTopic(ctx, r, routes, t, brokerapi.GroupID(resp.GetGroup().GetId()))
		resp.Unknown = append(resp.Unknown, unknown...)
		if row != nil && (req.GetTopic() != "" || used(row)) {
			resp.Topics = append(resp.Topics, row)
		}
	}
	return resp, nil
}

// topicsOf is the topic of that name, or all.
func (s *Server) topicsOf(d *controllerv1.Definitions, name string) ([]*controllerv1.Topic, error) {
	if name == "" {
		return d.GetTopics(), nil
	}
	for _, t := range d.GetTopics() {
		if t.GetName() == name {
			return []*controllerv1.Topic{t}, nil
		}
	}
	return nil, rpc.ToStatus(mqerr.New(mqerr.TopicNotFound, "there is no topic %s: see perigee topic list", name))
}

// used tells whether a group has read a topic.
func used(t *adminv1.GroupTopic) bool {
	for _, q := range t.GetQueues() {
		if q.GetUsed() {
			return true
		}
	}
	return false
}

// groupTopic asks every broker of a topic for a group's progress. Brokers that do not answer are
// named: their figures are unknown, not 0.
func (s *Server) groupTopic(ctx context.Context, r round, routes *route.Snapshot, t *controllerv1.Topic, group brokerapi.GroupID) (*adminv1.GroupTopic, []string) {
	row := &adminv1.GroupTopic{Topic: t.GetName()}
	var unknown []string
	for _, p := range t.GetPlacements() {
		shard := brokerapi.ShardID(p.GetShard())
		var queues []brokerapi.GroupQueue
		err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) (err error) {
			queues, err = b.DescribeGroup(ctx, brokerapi.TopicID(t.GetId()), group)
			return err
		})
		if err != nil {
			unknown = append(unknown, fmt.Sprintf("topic %s, broker %s: %v", t.GetName(), s.shardName(routes, shard), err))
			continue
		}
		for i, q := range queues {
			if i == 0 {
				row.Bounds = append(row.Bounds, &adminv1.InFlightBounds{Broker: s.shardName(routes, shard), Group: q.MaxInFlight, Client: q.MaxInFlightClient})
			}
			add(row, s.shardName(routes, shard), q)
		}
	}
	return row, unknown
}

// add puts one queue into the sums.
func add(row *adminv1.GroupTopic, broker string, q brokerapi.GroupQueue) {
	row.Ready += q.Ready
	row.InFlight += q.InFlight
	row.Waiting += q.Waiting
	row.OverMaxAttempts += q.OverMax
	row.Lost += q.Lost
	if q.OldestMS != 0 && (row.OldestMs == nil || q.OldestMS < *row.OldestMs) {
		row.OldestMs = &q.OldestMS
	}
	row.Queues = append(row.Queues, &adminv1.GroupQueue{
		Broker: broker, Queue: int32(q.Queue), Min: int64(q.Min), Max: int64(q.Max), Floor: int64(q.Floor), Next: int64(q.Next),
		Ready: q.Ready, InFlight: q.InFlight, Waiting: q.Waiting, Used: q.Used,
	})
}
