package server

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// liteSlack is how many names beyond the quota one request may have, as in the reference server.
const liteSlack = 300

// SyncLiteSubscription changes what a lite consumer subscribes to, at every broker of the parent topic
// that has one of the lite topics, or may have one that is to go.
func (s *Server) SyncLiteSubscription(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	var q rmqv2.SyncLiteSubscriptionRequest
	if err := proto.Unmarshal(c.Request(), &q); err != nil {
		failDecode(c, wire.ErrMalformed)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	topic, group, no := s.checkSync(&q)
	if no.given() {
		reject(c, no)
		return
	}
	req := liteRequest(&q, topic, group, client)
	go func() { // waits for brokers, which a transport's goroutine must not
		ctx, cancel := context.WithDeadline(c.Context(), s.deadline(c))
		defer cancel()
		if err := s.syncLite(ctx, topic, req); err != nil {
			reject(c, s.outcome(RPCSyncLiteSubscription, err))
			return
		}
		s.lites.remember(req, s.o.Now())
		c.Reply(okReply(0))
	}()
}

// checkSync checks a request in the order of the reference server.
func (s *Server) checkSync(q *rmqv2.SyncLiteSubscriptionRequest) (*route.Topic, *route.Group, refusal) {
	fail := func(r refusal) (*route.Topic, *route.Group, refusal) { return nil, nil, r }
	name := q.GetTopic().GetName()
	if no := checkTopic([]byte(name)); no.given() {
		return fail(no)
	}
	if no := checkGroup([]byte(q.GetGroup().GetName())); no.given() {
		return fail(no)
	}
	for _, lite := range q.GetLiteTopicSet() {
		if no := s.o.Limits.checkLiteTopic([]byte(lite)); no.given() {
			return fail(no)
		}
	}
	if a := q.GetAction(); a < rmqv2.LiteSubscriptionAction_PARTIAL_ADD || a > rmqv2.LiteSubscriptionAction_COMPLETE_REMOVE {
		return fail(refuse(rmqv2.Code_BAD_REQUEST, fmt.Sprintf("the action %d on lite subscriptions is not known", a)))
	}
	if o := q.GetOffsetOption(); o.GetOffset() < 0 || o.GetTailN() < 0 {
		return fail(refuse(rmqv2.Code_ILLEGAL_OFFSET, "the offset option is negative: a queue begins at 0"))
	}
	routes := s.o.Routes.Load()
	group := routes.Group([]byte(q.GetGroup().GetName()))
	if group == nil {
		return fail(refuse(rmqv2.Code_ILLEGAL_CONSUMER_GROUP, fmt.Sprintf("consumer group %s does not exist", q.GetGroup().GetName())))
	}
	if group.LiteTopic != name {
		return fail(refuse(rmqv2.Code_ILLEGAL_TOPIC, fmt.Sprintf("consumer group %s is bound to lite topics of %q, not of %q", group.Name, group.LiteTopic, name)))
	}
	topic := routes.Topic([]byte(name))
	if topic == nil || topic.Queues == 0 {
		return fail(refuse(rmqv2.Code_TOPIC_NOT_FOUND, fmt.Sprintf("topic %s does not exist", name)))
	}
	if n, most := len(q.GetLiteTopicSet()), s.o.Limits.LiteQuota+liteSlack; n > most {
		return fail(refuse(rmqv2.Code_LITE_SUBSCRIPTION_QUOTA_EXCEEDED, fmt.Sprintf("%d lite topics in one request: the quota of a client is %d", n, s.o.Limits.LiteQuota)))
	}
	return topic, group, refusal{}
}

// liteRequest is a request to brokers, with strings of its own.
func liteRequest(q *rmqv2.SyncLiteSubscriptionRequest, topic *route.Topic, group *route.Group, client string) *brokerapi.SyncLiteRequest {
	req := &brokerapi.SyncLiteRequest{
		Topic: topic.ID, Group: group.ID, Client: strings.Clone(client), Action: brokerapi.LiteAction(q.GetAction()), Version: q.GetVersion(),
	}
	if req.Action != brokerapi.LiteCompleteRemove {
		req.Names = q.GetLiteTopicSet()
	}
	if req.Action == brokerapi.LitePartialAdd {
		req.From, req.Value = liteFrom(q.GetOffsetOption())
	}
	return req
}

// liteFrom is where a group begins on a lite topic that it has not read. LAST is where it stopped, so
// there it is the group's own beginning.
func liteFrom(o *rmqv2.OffsetOption) (brokerapi.LiteFrom, int64) {
	switch t := o.GetOffsetType().(type) {
	case *rmqv2.OffsetOption_Policy_:
		switch t.Policy {
		case rmqv2.OffsetOption_MIN:
			return brokerapi.LiteFromFirst, 0
		case rmqv2.OffsetOption_MAX:
			return brokerapi.LiteFromEnd, 0
		}
	case *rmqv2.OffsetOption_Offset:
		return brokerapi.LiteFromOffset, t.Offset
	case *rmqv2.OffsetOption_TailN:
		return brokerapi.LiteFromTail, t.TailN
	case *rmqv2.OffsetOption_Timestamp:
		return brokerapi.LiteFromTime, t.Timestamp
	}
	return brokerapi.LiteFromDefault, 0
}

// syncLite tells the brokers of the parent, each of its own lite topics. What one of them refuses is the
// answer; that others have taken their part does no harm, since clients say everything again.
func (s *Server) syncLite(ctx context.Context, topic *route.Topic, req *brokerapi.SyncLiteRequest) error {
	parts := liteParts(topic, req)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { errs[i] = s.syncShard(ctx, p.shard, &p.req) })
	}
	wg.Wait()
	var first error
	for _, err := range errs {
		if mqerr.Is(err, mqerr.QuotaExceeded) {
			return err // says more than that another one is away
		}
		first = cmp.Or(first, err)
	}
	return first
}

func (s *Server) syncShard(ctx context.Context, shard brokerapi.ShardID, req *brokerapi.SyncLiteRequest) error {
	return s.asked(ctx, shard, func(b brokerapi.Broker) error {
		_, err := b.SyncLite(ctx, req)
		return err
	})
}

// litePart is what one shard is told.
type litePart struct {
	shard brokerapi.ShardID
	req   brokerapi.SyncLiteRequest
}

// liteParts deals the names of a request out to their shards. A complete set concerns every shard.
func liteParts(topic *route.Topic, req *brokerapi.SyncLiteRequest) []litePart {
	complete := req.Action == brokerapi.LiteCompleteAdd || req.Action == brokerapi.LiteCompleteRemove
	var parts []litePart
	for _, p := range topic.Placements {
		part := litePart{shard: p.Shard, req: *req}
		if part.req.Names = req.Names; len(topic.Placements) > 1 {
			part.req.Names = nil
			for _, name := range req.Names {
				if liteHome(topic, []byte(name)) == p.Shard {
					part.req.Names = append(part.req.Names, name)
				}
			}
		}
		if complete || len(part.req.Names) > 0 {
			parts = append(parts, part)
		}
	}
	return parts
}
