package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/longpoll"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// receives is what all ReceiveMessage calls of a server share.
type receives struct {
	unsent  atomic.Int64  // bytes of messages that wait for readers
	refused atomic.Int64  // calls because of that
	mixed   sync.Map      // GroupIDs that were warned of, see meetsGroups
	cutOff  time.Duration // how long a caller may take to read its answer; 0: sendTimeout
}

// receive is one ReceiveMessage call. Its fields alias the request, which lives until the call is
// completed.
type receive struct {
	s       *Server
	call    call.Stream
	started time.Time
	client  string
	req     wire.ReceiveMessageRequest
	until   time.Time // when it is answered with nothing
	topic   *route.Topic
	group   *route.Group
	want    longpoll.Request
}

// ReceiveMessage leases messages for a group and streams them: status, messages, time. The handler
// returns at once; the call waits in the long polls.
func (s *Server) ReceiveMessage(c call.Stream) {
	r := &receive{s: s, call: c, started: s.o.Now()}
	var no refusal
	if r.client, no = clientID(c); no.given() {
		r.refuse(no, false)
		return
	}
	if err := r.req.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	s.o.Clients.Heard(r.client, r.started)
	if no = r.check(); no.given() {
		r.refuse(no, true)
		return
	}
	s.named(c, r.req.Queue.Topic.Name, r.req.Group.Name, func(t *route.Topic, g *route.Group, err error) {
		if err != nil {
			r.refuse(s.outcome(RPCReceiveMessage, err), true)
			return
		}
		r.topic, r.group = t, g
		r.start()
	})
}

// named finds the topic and the group of a call, and makes them if that is allowed.
func (s *Server) named(c call.Info, topic, group []byte, then func(*route.Topic, *route.Group, error)) {
	routes := s.o.Routes.Load()
	t, g := routes.Topic(topic), routes.Group(group)
	switch {
	case t == nil:
		s.topicMissing(c, string(topic), func(_ *route.Snapshot, t *route.Topic, err error) {
			if err != nil {
				then(nil, nil, err)
				return
			}
			s.named(c, topic, group, then)
		})
	case g == nil:
		s.groupMissing(c, string(group), func(g *route.Group, err error) { then(t, g, err) })
	default:
		then(t, g, nil)
	}
}

// groupMissing makes a group if that is allowed and goes on with it, maybe on another goroutine.
func (s *Server) groupMissing(c call.Info, name string, then func(*route.Group, error)) {
	if s.o.Creator == nil {
		then(nil, mqerr.New(mqerr.GroupNotFound, "consumer group %s does not exist", name))
		return
	}
	go func() { // waits for the controller, which a transport's goroutine must not
		ctx, cancel := context.WithDeadline(c.Context(), s.deadline(c))
		defer cancel()
		then(s.ensureGroup(ctx, name))
	}()
}

// ensureGroup returns the group, made now if it is missing and that is allowed.
func (s *Server) ensureGroup(ctx context.Context, name string) (*route.Group, error) {
	if g := s.o.Routes.Load().Group([]byte(name)); g != nil {
		return g, nil
	}
	if s.o.Creator != nil {
		if err := s.o.Creator.EnsureGroup(ctx, name); err != nil {
			return nil, err
		}
		if g := s.o.Routes.Load().Group([]byte(name)); g != nil {
			return g, nil
		}
	}
	return nil, mqerr.New(mqerr.GroupNotFound, "consumer group %s does not exist", name)
}

// start lets the call wait for messages.
func (r *receive) start() {
	if no := r.aim(); no.given() {
		r.refuse(no, true)
		return
	}
	if r.want.Pop.Session {
		r.s.o.Clients.Renews(r.client, r.started)
	}
	var stop func() bool // undoes what follows
	ctx := r.call.Context()
	armed := make(chan struct{})
	wait := r.s.o.Polls.Receive(&r.want, func(a longpoll.Answer) {
		go func() { // a slow reader must not hold up the broker's goroutine
			<-armed
			stop()
			r.answer(a)
		}()
	})
	stop = context.AfterFunc(ctx, func() {
		if wait.Cancel() {
			r.call.Fail(call.Cancelled, "the caller went away")
		}
	})
	close(armed)
}

// aim says which brokers may answer, and with what.
func (r *receive) aim() refusal {
	routes := r.s.o.Routes.Load()
	if len(routes.HandleKeys()) == 0 {
		return r.s.outcome(RPCReceiveMessage, mqerr.New(mqerr.Unavailable, "the keys of receipt handles are not known yet"))
	}
	if err := r.s.unread(); err != nil {
		return r.s.outcome(RPCReceiveMessage, err)
	}
	if r.s.o.Polls.Waiting() >= receivesPressed {
		if err := r.s.pressed(); err != nil {
			return r.s.outcome(RPCReceiveMessage, err)
		}
	}
	for _, p := range r.topic.Placements {
		r.want.Shards = append(r.want.Shards, p.Shard)
	}
	if len(r.want.Shards) == 0 {
		return refuse(rmqv2.Code_FORBIDDEN, "topic "+r.topic.Name+" has no queue")
	}
	p := &r.want.Pop
	p.Topic, p.Group, p.Client, p.AttemptID = r.topic.ID, r.group.ID, r.client, string(r.req.AttemptID)
	if sh := routes.ShardByName(r.req.Queue.Broker); p.AttemptID != "" && sh != nil && serves(r.topic, sh.ID) {
		r.want.Shards = append(r.want.Shards[:0], sh.ID)
	}
	r.want.Deadline = r.until
	r.want.Own = r.group.LiteTopic != "" && r.group.LiteTopic == r.topic.Name
	return refusal{}
}

// unread refuses more while too much waits for readers that are slow.
func (s *Server) unread() error {
	if most := s.o.Limits.UnsentBytes; s.receives.unsent.Load() > most {
		s.receives.refused.Add(1)
		return mqerr.New(mqerr.Exhausted, "more than %d MiB wait for consumers that do not read: retry after a pause", most>>20)
	}
	return nil
}

func serves(t *route.Topic, shard brokerapi.ShardID) bool {
	for _, p := range t.Placements {
		if p.Shard == shard {
			return true
		}
	}
	return false
}

// errorDelay is the least time that an error takes: Rust polls again a millisecond after one. A refusal that
// asks for a pause takes that long, since Java, Node.js, C++ and C# poll again 20 ms after one.
const errorDelay = 100 * time.Millisecond

// refuse answers with an error, not too soon. stamped adds the server's time.
func (r *receive) refuse(no refusal, stamped bool) {
	now := r.s.o.Now()
	no.hint(r.call)
	wait := max(errorDelay, no.pause) - now.Sub(r.started)
	if at, ok := r.call.Deadline(); ok {
		wait = min(wait, at.Sub(now)/2)
	}
	if wait <= 0 {
		go r.end(no, stamped)
		return
	}
	time.AfterFunc(wait, func() { r.end(no, stamped) })
}

// end writes an answer without messages. It may wait for the reader.
func (r *receive) end(no refusal, stamped bool) {
	err := r.call.Send(statusReply(no))
	if err == nil && stamped {
		_ = r.call.Send(r.stamp())
	}
	r.call.End()
}

func (r *receive) stamp() []byte {
	return wire.AppendDeliveryTimestamp(make([]byte, 0, 16), r.s.o.Now().UnixMilli())
}

// answer writes what the long poll came to.
func (r *receive) answer(a longpoll.Answer) {
	r.s.o.Clients.Heard(r.client, r.s.o.Now())
	switch {
	case a.Err != nil:
		r.refuse(r.s.outcome(RPCReceiveMessage, a.Err), true)
	case a.Reply == nil:
		r.end(refuse(rmqv2.Code_MESSAGE_NOT_FOUND, "no new message"), true)
	default:
		r.deliver(a)
	}
}

// meetsGroups says once that messages with a message group were handed out to an unordered group, where
// groups are made on first use: the program may have meant an ordered one.
func (r *receive) meetsGroups(messages []brokerapi.Delivery) {
	if r.s.o.Creator == nil || r.group.Ordered || r.group.LiteTopic != "" {
		return
	}
	for i := range messages {
		if messages[i].Type != brokerapi.FIFO {
			continue
		}
		if _, told := r.s.receives.mixed.LoadOrStore(r.group.ID, true); !told {
			r.s.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "unordered group receives messages with a message group: their order is not kept; if it matters, make the group ordered (perigee group update --ordered)",
				slog.String("group", r.group.Name), slog.String("topic", r.topic.Name),
				slog.String("hint", fmt.Sprintf("for delivery in order: perigee group create %s --ordered, before its first use", r.group.Name)))
		}
		return
	}
}
