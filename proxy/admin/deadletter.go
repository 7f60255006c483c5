package admin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Prefixes of the topics that brokers make for what was consumed or ended in vain.
const (
	deadPrefix = "%DLQ%"
	txnPrefix  = "%TXN%"
)

// Bounds and defaults of requests about dead letters.
const (
	lettersMax     = 1024
	lettersDefault = 20
	previewDefault = 64
	previewMax     = 64 << 10
)

// Names of the user properties by which a broker tells readers of a dead letter what it went through.
const (
	propertyReason   = "DEAD_LETTER_REASON"
	propertyAttempts = "DEAD_LETTER_ATTEMPTS"
	propertyFirst    = "DEAD_LETTER_FIRST_DELIVERY"
	propertyLast     = "DEAD_LETTER_LAST_DELIVERY"
)

// isDead reports whether a topic is one of dead letters.
func isDead(topic string) bool {
	return strings.HasPrefix(topic, deadPrefix) || strings.HasPrefix(topic, txnPrefix)
}

// ListDeadLetters counts the dead letters of all groups, and the transactions that nobody has ended.
func (s *Server) ListDeadLetters(ctx context.Context, _ *adminv1.ListDeadLettersRequest) (*adminv1.ListDeadLettersResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, err
	}
	resp, routes, r := &adminv1.ListDeadLettersResponse{}, s.o.Routes.Load(), s.round()
	for _, t := range d.GetTopics() {
		if !isDead(t.GetName()) {
			continue
		}
		for _, p := range t.GetPlacements() {
			shard := brokerapi.ShardID(p.GetShard())
			row := &adminv1.DeadLetterTopic{Topic: t.GetName(), Broker: s.shardName(routes, shard)}
			row.Group, _ = strings.CutPrefix(t.GetName(), deadPrefix)
			if of, is := strings.CutPrefix(t.GetName(), txnPrefix); is {
				row.Group, row.TransactionsOf = "", of
			}
			err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) error { return count(ctx, b, t, row) })
			if err != nil {
				resp.Unknown = append(resp.Unknown, fmt.Sprintf("topic %s, broker %s: %v", t.GetName(), row.GetBroker(), err))
				continue
			}
			resp.Topics = append(resp.Topics, row)
		}
	}
	return resp, nil
}

// count asks a broker what it has of a topic of dead letters.
func count(ctx context.Context, b brokerapi.Broker, t *controllerv1.Topic, row *adminv1.DeadLetterTopic) error {
	queues, err := b.DescribeTopic(ctx, brokerapi.TopicID(t.GetId()))
	if err != nil {
		return err
	}
	newest := int64(0)
	for _, q := range queues {
		row.Stored += int64(q.Max - q.Min)
		newest = max(newest, q.LastMS)
	}
	if newest > 0 {
		row.NewestMs = &newest
	}
	left, err := b.Redrive(ctx, &brokerapi.RedriveRequest{Dead: brokerapi.TopicID(t.GetId())})
	if err == nil {
		row.Left = left.Left
	}
	return err
}

// deadTopic finds a topic of dead letters.
func (s *Server) deadTopic(ctx context.Context, name string) (*controllerv1.Topic, *controllerv1.Definitions, error) {
	if !isDead(name) {
		return nil, nil, rpc.ToStatus(mqerr.New(mqerr.Invalid, "topic %q is none of dead letters: those start with %s or %s", name, deadPrefix, txnPrefix))
	}
	d, err := s.definitions(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range d.GetTopics() {
		if t.GetName() == name {
			return t, d, nil
		}
	}
	return nil, nil, rpc.ToStatus(mqerr.New(mqerr.TopicNotFound, "there is no topic %s: nothing has gone there yet; see perigee dlq list", name))
}

// ShowDeadLetters shows what is left of one topic of dead letters, oldest first.
func (s *Server) ShowDeadLetters(ctx context.Context, req *adminv1.ShowDeadLettersRequest) (*adminv1.ShowDeadLettersResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	most, preview := int(req.GetMax()), int(req.GetPreviewBytes())
	if most == 0 {
		most = lettersDefault
	}
	if preview == 0 {
		preview = previewDefault
	}
	if most < 1 || most > lettersMax || preview < 0 || preview > previewMax {
		return nil, rpc.ToStatus(mqerr.New(mqerr.Invalid, "%d dead letters with %d bytes of each: 1 to %d with at most %d", most, preview, lettersMax, previewMax))
	}
	t, _, err := s.deadTopic(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	resp, routes, r := &adminv1.ShowDeadLettersResponse{}, s.o.Routes.Load(), s.round()
	for _, p := range t.GetPlacements() {
		shard := brokerapi.ShardID(p.GetShard())
		name := s.shardName(routes, shard)
		for q := range brokerapi.QueueID(p.GetQueues()) {
			err := r.ask(ctx, shard, func(ctx context.Context, b brokerapi.Broker) error {
				return readLetters(ctx, b, brokerapi.TopicID(t.GetId()), q, most-len(resp.Letters)+1, func(m *brokerapi.Delivery) {
					resp.Letters = append(resp.Letters, letterOf(name, t.GetName(), m, preview))
				})
			})
			if err != nil {
				resp.Unknown = append(resp.Unknown, fmt.Sprintf("broker %s: %v", name, err))
				break
			}
			if len(resp.Letters) > most {
				resp.Letters, resp.More = resp.Letters[:most], true
				return resp, nil
			}
		}
	}
	return resp, nil
}

// readLetters calls fn for up to most letters of a queue that are left.
func readLetters(ctx context.Context, b brokerapi.Broker, topic brokerapi.TopicID, q brokerapi.QueueID, most int, fn func(*brokerapi.Delivery)) error {
	queues, err := b.DescribeTopic(ctx, topic)
	if err != nil {
		return err
	}
	at := brokerapi.QueueOffset(0)
	for _, one := range queues {
		if one.Queue == q {
			at = one.Min
		}
	}
	for most > 0 {
		reply, err := pull(ctx, b, &brokerapi.PullRequest{Topic: topic, Queue: q, Offset: at, Max: most})
		if err != nil {
			return err
		}
		for i := range reply.Messages {
			fn(&reply.Messages[i])
		}
		most -= len(reply.Messages)
		end := reply.Next >= reply.Max || reply.Next <= at
		at = reply.Next
		reply.Release()
		if end {
			return nil
		}
	}
	return nil
}

// pull waits for the answer to a pull.
func pull(ctx context.Context, b brokerapi.Broker, req *brokerapi.PullRequest) (*brokerapi.PullReply, error) {
	type answer struct {
		r   *brokerapi.PullReply
		err error
	}
	if d, ok := ctx.Deadline(); ok {
		req.Deadline = d
	}
	c := make(chan answer, 1)
	b.Pull(req, func(r *brokerapi.PullReply, err error) { c <- answer{r, err} })
	select {
	case a := <-c:
		return a.r, a.err
	case <-ctx.Done():
		go func() { // the answer comes, by the request's deadline
			if a := <-c; a.err == nil {
				a.r.Release()
			}
		}()
		return nil, mqerr.New(mqerr.Timeout, "no answer in time: %w", ctx.Err())
	}
}

// letterOf is a dead letter for people. Bytes that cannot be read leave their part empty.
func letterOf(broker, topic string, m *brokerapi.Delivery, preview int) *adminv1.DeadLetter {
	var sys rmqv2.SystemProperties
	var user rmqv2.Message
	_ = proto.Unmarshal(m.Sys, &sys)
	_ = proto.Unmarshal(m.User, &user)
	p := user.GetUserProperties()
	l := &adminv1.DeadLetter{
		Broker: broker, Queue: int32(m.Queue), Offset: int64(m.Offset), MessageId: sys.GetMessageId(),
		FromTopic: sys.GetDeadLetterQueue().GetTopic(), Reason: p[propertyReason], DeadMs: m.StoreTime, Tag: sys.GetTag(), Keys: sys.GetKeys(),
		MessageGroup: sys.GetMessageGroup(), BodySize: int32(len(m.Body)), BodyPreview: append([]byte(nil), m.Body[:min(len(m.Body), preview)]...),
	}
	if n, err := strconv.ParseInt(p[propertyAttempts], 10, 32); err == nil {
		l.Attempts = new(int32(n))
	}
	l.FirstDeliveryMs, l.LastDeliveryMs = number(p[propertyFirst]), number(p[propertyLast])
	for _, name := range []string{propertyReason, propertyAttempts, propertyFirst, propertyLast} {
		delete(p, name)
	}
	l.Properties = p
	if of, is := strings.CutPrefix(topic, txnPrefix); is && l.GetReason() == "" {
		l.FromTopic, l.Reason = of, "transaction that nobody ended"
	}
	if l.GetReason() == "" {
		l.Reason = "sent to this topic"
	}
	return l
}

func number(text string) *int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// redrivePatience is how long a broker may take to move one set of letters.
const redrivePatience = 10 * time.Second

// RedriveDeadLetters moves dead letters of one topic on one broker back, oldest first.
func (s *Server) RedriveDeadLetters(ctx context.Context, req *adminv1.RedriveDeadLettersRequest) (*adminv1.RedriveDeadLettersResponse, error) {
	ctx, cancel := early(ctx)
	defer cancel()
	if req.GetMax() < 1 || req.GetMax() > lettersMax {
		return nil, rpc.ToStatus(mqerr.New(mqerr.Invalid, "%d dead letters in one request: 1 to %d", req.GetMax(), lettersMax))
	}
	t, d, err := s.deadTopic(ctx, req.GetTopic())
	if err != nil {
		return nil, err
	}
	ask := brokerapi.RedriveRequest{Dead: brokerapi.TopicID(t.GetId()), Max: int(req.GetMax()), After: brokerapi.LogPos(req.GetAfter())}
	if req.GetTo() != "" {
		to, err := s.topicsOf(d, req.GetTo())
		if err != nil {
			return nil, err
		}
		ask.To = brokerapi.TopicID(to[0].GetId())
	}
	routes := s.o.Routes.Load()
	for _, p := range t.GetPlacements() {
		shard := brokerapi.ShardID(p.GetShard())
		if s.shardName(routes, shard) != req.GetBroker() {
			continue
		}
		b, _, err := s.o.Brokers.Broker(shard)
		if err != nil {
			return nil, rpc.ToStatus(err)
		}
		ctx, cancel := context.WithTimeout(ctx, redrivePatience)
		defer cancel()
		reply, err := b.Redrive(ctx, &ask)
		if mqerr.Is(err, mqerr.TopicNotFound) {
			err = mqerr.New(mqerr.TopicNotFound, "broker %s does not serve topic %s or %s", req.GetBroker(), req.GetTopic(), req.GetTo())
		}
		if err != nil {
			return nil, rpc.ToStatus(err)
		}
		return &adminv1.RedriveDeadLettersResponse{Redriven: int32(reply.Redriven), Left: reply.Left, Next: int64(reply.Next), Failed: reply.Failed}, nil
	}
	return nil, rpc.ToStatus(mqerr.New(mqerr.NotFound, "broker %q has no dead letters of topic %s: see perigee dlq list", req.GetBroker(), req.GetTopic()))
}
