package admin

import (
	"context"
	"fmt"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// ResetGroup moves a group on a topic, broker by broker: one that fails keeps the others from nothing.
func (s *Server) ResetGroup(ctx context.Context, req *adminv1.ResetGroupRequest) (*adminv1.ResetGroupResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	ask := brokerapi.ResetRequest{DryRun: req.GetDryRun()}
	if err := target(&ask, req); err != nil {
		return nil, err
	}
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	group, err := groupOf(d, req.GetGroup())
	if err != nil {
		return nil, err
	}
	if req.GetTopic() == "" {
		return nil, rpc.ToStatus(mqerr.New(mqerr.Invalid, "a reset needs the name of a topic"))
	}
	topics, err := s.topicsOf(d, req.GetTopic())
	if err != nil {
		return nil, err
	}
	ask.Topic, ask.Group = brokerapi.TopicID(topics[0].GetId()), group
	resp, routes, r := &adminv1.ResetGroupResponse{}, s.o.Routes.Load(), s.round()
	for _, p := range topics[0].GetPlacements() {
		shard := brokerapi.ShardID(p.GetShard())
		var reply *brokerapi.ResetReply
		err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) (err error) {
			reply, err = b.Reset(ctx, &ask)
			return err
		})
		name := s.shardName(routes, shard)
		if err != nil {
			resp.Unknown = append(resp.Unknown, fmt.Sprintf("broker %s: %v", name, err))
			continue
		}
		for _, q := range reply.Queues {
			resp.Queues = append(resp.Queues, &adminv1.ResetQueue{
				Broker: name, Queue: int32(q.Queue), From: int64(q.From), To: int64(q.To), InFlight: q.InFlight, Again: q.Again, Dropped: q.Dropped,
			})
		}
	}
	return resp, nil
}

// target says in ask where a group is to go.
func target(ask *brokerapi.ResetRequest, req *adminv1.ResetGroupRequest) error {
	switch to := req.GetTo().(type) {
	case *adminv1.ResetGroupRequest_Begin:
		ask.To = brokerapi.ResetBegin
	case *adminv1.ResetGroupRequest_End:
		ask.To = brokerapi.ResetEnd
	case *adminv1.ResetGroupRequest_TimeMs:
		ask.To, ask.TimeMS = brokerapi.ResetTime, to.TimeMs
	case *adminv1.ResetGroupRequest_Skip:
		if to.Skip < 0 {
			return rpc.ToStatus(mqerr.New(mqerr.Invalid, "a reset cannot skip %d messages: it skips 0 or more", to.Skip))
		}
		ask.To, ask.Skip = brokerapi.ResetSkip, to.Skip
	default:
		return rpc.ToStatus(mqerr.New(mqerr.Invalid, "a reset needs one of: begin, end, a time, a number of messages to skip"))
	}
	return nil
}

// groupOf finds a group by name.
func groupOf(d *controllerv1.Definitions, name string) (brokerapi.GroupID, error) {
	for _, g := range d.GetGroups() {
		if g.GetName() == name {
			return brokerapi.GroupID(g.GetId()), nil
		}
	}
	return 0, rpc.ToStatus(mqerr.New(mqerr.GroupNotFound, "there is no group %s: see perigee group list", name))
}

// GroupOffsets shows where a group stands on all topics, or on the one asked for.
func (s *Server) GroupOffsets(ctx context.Context, req *adminv1.GroupOffsetsRequest) (*adminv1.GroupOffsetsResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	group, err := groupOf(d, req.GetGroup())
	if err != nil {
		return nil, err
	}
	topics, err := s.topicsOf(d, req.GetTopic())
	if err != nil {
		return nil, err
	}
	resp, routes, r := &adminv1.GroupOffsetsResponse{}, s.o.Routes.Load(), s.round()
	for _, t := range topics {
		for _, p := range t.GetPlacements() {
			shard := brokerapi.ShardID(p.GetShard())
			var rows []*adminv1.GroupOffset
			err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) (err error) {
				rows, err = positions(ctx, b, brokerapi.TopicID(t.GetId()), group)
				return err
			})
			name := s.shardName(routes, shard)
			if err != nil {
				resp.Unknown = append(resp.Unknown, fmt.Sprintf("topic %s, broker %s: %v", t.GetName(), name, err))
				continue
			}
			for _, row := range rows {
				if row.Position != nil || req.GetTopic() != "" {
					row.Topic, row.Broker = t.GetName(), name
					resp.Offsets = append(resp.Offsets, row)
				}
			}
		}
	}
	return resp, nil
}

// positions asks one broker where a group stands in each queue of a topic.
func positions(ctx context.Context, b brokerapi.Broker, topic brokerapi.TopicID, group brokerapi.GroupID) ([]*adminv1.GroupOffset, error) {
	queues, err := b.DescribeTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	rows := make([]*adminv1.GroupOffset, len(queues))
	for i, q := range queues {
		rows[i] = &adminv1.GroupOffset{Queue: int32(q.Queue), Min: int64(q.Min), Max: int64(q.Max)}
		at, err := b.Offset(ctx, &brokerapi.OffsetRequest{Of: brokerapi.OffsetOfGroup, Topic: topic, Group: group, Queue: q.Queue})
		switch {
		case err == nil:
			off := int64(at.Offset)
			rows[i].Position = &off
		case !mqerr.Is(err, mqerr.NotFound):
			return nil, err
		}
	}
	return rows, nil
}
