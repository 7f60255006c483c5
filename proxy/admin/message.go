package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
	"github.com/perigee-mq/perigee/proxy/route"
)

// findDefault is how many messages a search returns that does not say.
const findDefault = 32

// FindMessages looks for stored messages by key, id or place on every broker of a topic, all at once: a
// search may take a while where much is stored. Brokers that do not answer are named.
func (s *Server) FindMessages(ctx context.Context, req *adminv1.FindMessagesRequest) (*adminv1.FindMessagesResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	ask := &brokerapi.FindRequest{
		Key: req.GetKey(), ID: req.GetId(), Queue: -1, FromMS: req.GetFromMs(), ToMS: req.GetToMs(), Max: cmp.Or(int(req.GetMax()), findDefault), Bodies: req.GetBodies(),
	}
	named := 0
	for _, is := range []bool{ask.Key != "", ask.ID != "", req.GetPlace() != nil} {
		if is {
			named++
		}
	}
	if named != 1 {
		return nil, rpc.ToStatus(mqerr.New(mqerr.Invalid, "a search is by key, by id, or by queue and offset: name one of them"))
	}
	if p := req.GetPlace(); p != nil {
		ask.Queue, ask.Offset = brokerapi.QueueID(p.GetQueue()), brokerapi.QueueOffset(p.GetOffset())
	}
	routes := s.o.Routes.Load()
	t, shards, err := s.brokersOf(routes, req.GetTopic(), req.GetBroker())
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	ask.Topic = t.ID
	answers := s.findOn(ctx, shards, ask)
	resp, refusal := &adminv1.FindMessagesResponse{}, error(nil)
	for i, a := range answers {
		name := s.shardName(routes, shards[i])
		switch {
		case mqerr.Is(a.err, mqerr.TopicNotFound): // nothing of it was stored there
		case req.GetPlace() != nil && (mqerr.Is(a.err, mqerr.NotFound) || mqerr.Is(a.err, mqerr.Invalid)):
			refusal = a.err // another broker may have such a place
		case mqerr.Is(a.err, mqerr.Invalid):
			return nil, rpc.ToStatus(a.err)
		case a.err != nil:
			resp.Unknown = append(resp.Unknown, fmt.Sprintf("broker %s: %v", name, a.err))
		default:
			for _, u := range a.reply.Unknown {
				resp.Unknown = append(resp.Unknown, fmt.Sprintf("broker %s: %s", name, u))
			}
			resp.More = resp.More || a.reply.More
			for k := range a.reply.Messages {
				resp.Messages = append(resp.Messages, storedMessage(name, &a.reply.Messages[k]))
			}
		}
	}
	if len(resp.GetMessages()) == 0 && len(resp.GetUnknown()) == 0 && refusal != nil {
		return nil, rpc.ToStatus(refusal)
	}
	slices.SortStableFunc(resp.Messages, func(a, b *adminv1.StoredMessage) int { return cmp.Compare(b.GetStoreMs(), a.GetStoreMs()) })
	if len(resp.GetMessages()) > ask.Max {
		resp.Messages, resp.More = resp.GetMessages()[:ask.Max], true
	}
	return resp, nil
}

// brokersOf finds a topic and the shards that have it, or the one of a name.
func (s *Server) brokersOf(routes *route.Snapshot, topic, broker string) (*route.Topic, []brokerapi.ShardID, error) {
	t := routes.Topic([]byte(topic))
	if t == nil {
		return nil, nil, mqerr.New(mqerr.TopicNotFound, "there is no topic %s: see perigee topic list", topic)
	}
	var shards []brokerapi.ShardID
	var names []string
	for _, p := range t.Placements {
		name := s.shardName(routes, p.Shard)
		if names = append(names, name); broker == "" || broker == name {
			shards = append(shards, p.Shard)
		}
	}
	if len(shards) == 0 {
		return nil, nil, mqerr.New(mqerr.NotFound, "broker group %s has no queue of topic %s: those are on %s", broker, topic, strings.Join(names, ", "))
	}
	return t, shards, nil
}

// foundOn is what one broker found.
type foundOn struct {
	reply *brokerapi.FindReply
	err   error
}

func (s *Server) findOn(ctx context.Context, shards []brokerapi.ShardID, ask *brokerapi.FindRequest) []foundOn {
	out := make([]foundOn, len(shards))
	var all sync.WaitGroup
	for i, shard := range shards {
		all.Go(func() {
			b, _, err := s.o.Brokers.Broker(shard)
			if err == nil {
				out[i].reply, err = b.Find(ctx, ask)
			}
			out[i].err = err
		})
	}
	all.Wait()
	return out
}

// storedMessage is a found message for people: what its sender encoded is decoded.
func storedMessage(broker string, m *brokerapi.Found) *adminv1.StoredMessage {
	out := &adminv1.StoredMessage{
		Broker: broker, Position: int64(m.Pos), Queue: int32(m.Queue), Offset: int64(m.Offset), Type: rmqv2.MessageType_name[int32(m.Type)],
		StoreMs: m.StoreTime, DeliverMs: m.DeliverAt, Id: m.ID, State: m.State, Size: int64(m.Size), Body: m.Body,
	}
	var sys rmqv2.SystemProperties
	if proto.Unmarshal(m.Sys, &sys) == nil {
		out.Tag, out.Keys, out.MessageGroup = sys.GetTag(), sys.GetKeys(), sys.GetMessageGroup()
		out.LiteTopic = sys.GetLiteTopic()
		out.BornMs, out.BornHost = sys.GetBornTimestamp().AsTime().UnixMilli(), sys.GetBornHost()
	}
	var user rmqv2.Message
	if proto.Unmarshal(m.User, &user) == nil {
		out.Properties = user.GetUserProperties()
	}
	return out
}

// TraceMessage tells the life of one stored message, as far as one call goes.
func (s *Server) TraceMessage(ctx context.Context, req *adminv1.TraceMessageRequest) (*adminv1.TraceMessageResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	routes := s.o.Routes.Load()
	t, shards, err := s.brokersOf(routes, req.GetTopic(), req.GetBroker())
	if err == nil && len(shards) > 1 {
		err = mqerr.New(mqerr.Invalid, "topic %s is on several brokers: name the one that has the message", req.GetTopic())
	}
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	b, _, err := s.o.Brokers.Broker(shards[0])
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	reply, err := b.Trace(ctx, &brokerapi.TraceRequest{Topic: t.ID, Pos: brokerapi.LogPos(req.GetPosition()), Max: int(req.GetMax()), State: req.GetState()})
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	resp := &adminv1.TraceMessageResponse{More: reply.More, State: reply.State, Next: int64(reply.Next), End: int64(reply.End)}
	if reply.Message.ID != "" {
		resp.Message = storedMessage(s.shardName(routes, shards[0]), &reply.Message)
	}
	for i := range reply.Events {
		e := &reply.Events[i]
		resp.Events = append(resp.Events, &adminv1.MessageEvent{
			Position: int64(e.Pos), TimeMs: e.TimeMS, What: e.What, Group: groupName(routes, e.Group), Client: e.Client, Attempt: e.Attempt, UntilMs: e.UntilMS, Text: e.Text,
		})
	}
	return resp, nil
}

// groupName is how people know a group; one that is deleted has only its number.
func groupName(routes *route.Snapshot, id brokerapi.GroupID) string {
	if id == 0 {
		return ""
	}
	if g := routes.GroupByID(id); g != nil {
		return g.Name
	}
	return fmt.Sprintf("group #%d", id)
}
