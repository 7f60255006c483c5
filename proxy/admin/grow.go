package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

// GrowTopic takes the next step of giving a topic with message groups more queues: it begins, looks what is
// left, and ends it if nothing is. It does not wait, so that any proxy can take the next step.
func (s *Server) GrowTopic(ctx context.Context, req *adminv1.GrowTopicRequest) (*adminv1.GrowTopicResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	if req.GetAbort() {
		resp, err := s.grow(ctx, &controllerv1.GrowTopicRequest{Name: req.GetName(), Step: controllerv1.GrowStep_GROW_STEP_ABORT, UntilMs: req.GetUntilMs()})
		return &adminv1.GrowTopicResponse{Topic: resp.GetTopic(), Done: resp.GetTopic().GetGrowing() == nil, Changed: resp.GetChanged()}, err
	}
	begun, err := s.grow(ctx, &controllerv1.GrowTopicRequest{Name: req.GetName(), Queues: req.GetQueues(), ForMs: req.GetForMs()})
	if err != nil {
		return nil, err
	}
	t := begun.GetTopic()
	if t.GetGrowing() == nil {
		return &adminv1.GrowTopicResponse{Topic: t, Done: true}, nil
	}
	out := &adminv1.GrowTopicResponse{Topic: t}
	if err := s.drained(ctx, out); err != nil || len(out.GetLeft())+len(out.GetUnknown()) > 0 {
		return out, err
	}
	ended, err := s.grow(ctx, &controllerv1.GrowTopicRequest{
		Name: t.GetName(), Step: controllerv1.GrowStep_GROW_STEP_FINISH, BeganVersion: t.GetGrowing().GetBeganVersion(),
	})
	if err != nil {
		return nil, err
	}
	layout := ended.GetTopic().GetLayoutVersion()
	if err := s.until(ctx, func(r *route.Snapshot) bool {
		have := r.TopicByID(brokerapi.TopicID(t.GetId()))
		return have == nil || have.Layout >= layout
	}); err != nil {
		return nil, err
	}
	return &adminv1.GrowTopicResponse{Topic: ended.GetTopic(), Done: true, Changed: true}, nil
}

func (s *Server) grow(ctx context.Context, req *controllerv1.GrowTopicRequest) (*controllerv1.GrowTopicResponse, error) {
	resp, err := s.o.Controller.GrowTopic(ctx, req)
	if err != nil {
		return nil, explain(err)
	}
	return resp, nil
}

// drained asks every broker of a topic that grows what is left there. A group that has read from one of them
// has to do what is on the others, too: those are asked again for it.
func (s *Server) drained(ctx context.Context, out *adminv1.GrowTopicResponse) error {
	d, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	names := map[brokerapi.GroupID]string{}
	for _, g := range d.GetGroups() {
		names[brokerapi.GroupID(g.GetId())] = g.GetName()
	}
	routes, r := s.o.Routes.Load(), s.round()
	left := map[brokerapi.ShardID]map[brokerapi.GroupID]int64{}
	readers := map[brokerapi.GroupID]bool{}
	ask := func(shard brokerapi.ShardID, groups []brokerapi.GroupID) *brokerapi.DrainReply {
		var reply *brokerapi.DrainReply
		req := &brokerapi.DrainRequest{Topic: brokerapi.TopicID(out.GetTopic().GetId()), Began: out.GetTopic().GetGrowing().GetBeganVersion(), Groups: groups}
		err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) (err error) {
			reply, err = b.Drain(ctx, req)
			return err
		})
		if err == nil && !reply.Growing {
			err = mqerr.New(mqerr.Unavailable, "it has not heard of it yet")
		}
		if err != nil {
			out.Unknown = append(out.Unknown, fmt.Sprintf("broker %s: %v", s.shardName(routes, shard), err))
			return nil
		}
		for _, g := range reply.Groups {
			left[shard][g.Group] = g.Undone
			readers[g.Group] = true
		}
		return reply
	}
	for _, p := range out.GetTopic().GetPlacements() {
		shard := brokerapi.ShardID(p.GetShard())
		left[shard] = map[brokerapi.GroupID]int64{}
		if reply := ask(shard, nil); reply != nil {
			for what, n := range map[string]int64{"storing": reply.Storing, "delayed": reply.Delayed, "transactions": reply.Halves} {
				if n > 0 {
					out.Left = append(out.Left, &adminv1.Undrained{Broker: s.shardName(routes, shard), What: what, Messages: n})
				}
			}
		}
	}
	if len(out.GetUnknown()) == 0 {
		for shard, known := range left {
			var more []brokerapi.GroupID
			for g := range readers {
				if _, ok := known[g]; !ok {
					more = append(more, g)
				}
			}
			if len(more) > 0 {
				ask(shard, more)
			}
		}
	}
	for shard, groups := range left {
		for g, n := range groups {
			if name, ok := names[g]; ok && n > 0 { // one that is gone has nothing to do
				out.Left = append(out.Left, &adminv1.Undrained{Broker: s.shardName(routes, shard), What: "group", Group: name, Messages: n})
			}
		}
	}
	slices.SortFunc(out.Left, func(a, b *adminv1.Undrained) int {
		return strings.Compare(a.GetBroker()+" "+a.GetWhat()+" "+a.GetGroup(), b.GetBroker()+" "+b.GetWhat()+" "+b.GetGroup())
	})
	return nil
}

// ListLiteTopics lists the lite topics of a parent by name, those of all its brokers together.
func (s *Server) ListLiteTopics(ctx context.Context, req *adminv1.ListLiteTopicsRequest) (*adminv1.ListLiteTopicsResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	most := int(req.GetMax())
	if most == 0 {
		most = 100
	}
	if most < 1 || most > 1024 {
		return nil, rpc.ToStatus(mqerr.New(mqerr.Invalid, "%d lite topics in one answer: 1 to 1024", most))
	}
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	topics, err := s.topicsOf(d, req.GetTopic())
	if err != nil {
		return nil, err
	}
	if req.GetTopic() == "" || topics[0].GetType() != controllerv1.TopicType_TOPIC_TYPE_LITE {
		return nil, rpc.ToStatus(mqerr.New(mqerr.Invalid, "topic %q is not of type LITE: it has no lite topics", req.GetTopic()))
	}
	t, out := topics[0], &adminv1.ListLiteTopicsResponse{}
	routes, r := s.o.Routes.Load(), s.round()
	for _, p := range t.GetPlacements() {
		shard := brokerapi.ShardID(p.GetShard())
		name := s.shardName(routes, shard)
		err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) error {
			reply, err := b.LiteList(ctx, &brokerapi.LiteListRequest{Topic: brokerapi.TopicID(t.GetId()), After: req.GetAfter(), Max: most})
			if err != nil {
				return err
			}
			for _, c := range reply.Topics {
				out.Topics = append(out.Topics, &adminv1.LiteTopic{
					Name: c.Name, Broker: name, Min: int64(c.Min), Max: int64(c.Max), ActiveMs: c.ActiveMS, Subscribers: int32(c.Subscribers),
				})
			}
			out.More = out.More || reply.More
			return nil
		})
		if err != nil {
			out.Unknown = append(out.Unknown, fmt.Sprintf("broker %s: %v", name, err))
		}
	}
	slices.SortFunc(out.Topics, func(a, b *adminv1.LiteTopic) int { return strings.Compare(a.GetName(), b.GetName()) })
	if len(out.Topics) > most {
		out.Topics, out.More = out.Topics[:most], true
	}
	return out, nil
}

// countLite asks a broker how many lite topics it has of a topic.
func countLite(ctx context.Context, b brokerapi.Broker, t *controllerv1.Topic, out *adminv1.DescribeTopicResponse) error {
	if t.GetType() != controllerv1.TopicType_TOPIC_TYPE_LITE {
		return nil
	}
	reply, err := b.LiteList(ctx, &brokerapi.LiteListRequest{Topic: brokerapi.TopicID(t.GetId())})
	if err == nil {
		out.LiteTopics += int64(reply.Count)
	}
	return err
}
