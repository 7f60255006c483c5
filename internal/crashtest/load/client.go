package load

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	"github.com/perigee-mq/perigee/internal/crashtest/history"
)

// client makes calls through any proxy, and takes them down.
type client struct {
	l    *Load
	name string
	rng  *rand.Rand
}

// Connect connects to a server that may come and go.
func (s Service) Connect(addr string) (*grpc.ClientConn, error) {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: time.Second}),
	}
	if s.Dial != nil {
		options = append(options, grpc.WithContextDialer(s.Dial))
	}
	return grpc.NewClient("passthrough:///"+addr, options...)
}

func (c *client) conn() *grpc.ClientConn { return c.l.conns[c.rng.IntN(len(c.l.conns))] }

func (c *client) rpc() rmqv2.MessagingServiceClient { return rmqv2.NewMessagingServiceClient(c.conn()) }

func (c *client) admin() adminv1.AdminServiceClient { return adminv1.NewAdminServiceClient(c.conn()) }

// call is the context of one call. A load that ends lets calls under way come to their own end.
func (c *client) call(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(context.WithoutCancel(ctx), "x-mq-client-id", c.name, "x-mq-language", "GO", "x-mq-client-version", "5.1.3")
	return context.WithTimeout(ctx, d)
}

// outcome says what a caller knows by an answer.
func outcome(s *rmqv2.Status, err error) (history.Outcome, string) {
	switch code := s.GetCode(); {
	case err != nil:
		return history.Unknown, err.Error()
	case code == rmqv2.Code_OK:
		return history.OK, "OK"
	case code == rmqv2.Code_CODE_UNSPECIFIED, code == rmqv2.Code_PROXY_TIMEOUT, code == rmqv2.Code_INTERNAL_SERVER_ERROR:
		return history.Unknown, code.String() + " " + s.GetMessage()
	default:
		return history.Fail, code.String() + " " + s.GetMessage()
	}
}

// adminOutcome says what a caller of the administrative service knows by an answer.
func adminOutcome(err error) (history.Outcome, string) {
	switch s := status.Convert(err); s.Code() {
	case codes.OK:
		return history.OK, "OK"
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal, codes.Aborted:
		return history.Unknown, s.String()
	default:
		return history.Fail, s.String()
	}
}

// wait pauses a caller, to let others run or because the server is away.
func (c *client) wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// ready paces a caller after a call.
func (c *client) pace(ctx context.Context, o history.Outcome) {
	if o == history.OK {
		c.wait(ctx, time.Duration(c.rng.Int64N(int64(c.l.at.Pause))))
		return
	}
	c.wait(ctx, max(20*time.Millisecond, c.l.at.Pause/10))
}

// outgoing is a message to send.
type outgoing struct {
	msg  *rmqv2.Message
	item history.Item
}

// message makes a message of a topic.
func (c *client) message(topic string, t rmqv2.MessageType) outgoing {
	n := c.l.seq.Add(1)
	id := fmt.Sprintf("01%032X", n)
	size := c.rng.IntN(600)
	if c.rng.IntN(20) == 0 {
		size = c.rng.IntN(12000)
	}
	body := fmt.Sprintf("%s %s", id, strings.Repeat("x", size))
	return outgoing{
		msg: &rmqv2.Message{
			Topic: resource(topic), Body: []byte(body),
			SystemProperties: &rmqv2.SystemProperties{MessageId: id, MessageType: t, BodyEncoding: rmqv2.Encoding_IDENTITY},
		},
		item: history.Item{ID: id, Body: digest([]byte(body)), Offset: -1},
	}
}

func resource(name string) *rmqv2.Resource { return &rmqv2.Resource{Name: name} }

// digest is a short form of a body.
func digest(body []byte) string {
	h := fnv.New64a()
	_, _ = h.Write(body)
	return fmt.Sprintf("%x", h.Sum64())
}

// send sends messages of one topic in one call.
func (c *client) send(ctx context.Context, topic string, out []outgoing) (*rmqv2.SendMessageResponse, history.Outcome) {
	op := &history.Op{Kind: history.Send, Client: c.name, Topic: topic}
	req := &rmqv2.SendMessageRequest{}
	for _, o := range out {
		op.Items, req.Messages = append(op.Items, o.item), append(req.Messages, o.msg)
		if o.msg.GetSystemProperties().GetMessageType() == rmqv2.MessageType_TRANSACTION {
			op.N = history.HalfMessage
		}
	}
	c.l.rec.Begin(op)
	ctx, cancel := c.call(ctx, 4*time.Second)
	defer cancel()
	resp, err := c.rpc().SendMessage(ctx, req)
	o, code := outcome(resp.GetStatus(), err)
	c.l.rec.End(op, o, code, func() {
		for i := range op.Items {
			op.Items[i].Outcome = o
			if i >= len(resp.GetEntries()) {
				continue
			}
			e := resp.GetEntries()[i]
			op.Items[i].Outcome, _ = outcome(e.GetStatus(), nil)
			if op.Items[i].Outcome == history.OK && op.N != history.HalfMessage && e.GetRecallHandle() == "" {
				op.Items[i].Offset = e.GetOffset()
			}
		}
	})
	return resp, o
}

// sendAgain sends messages, and again while nobody knows what became of them, as clients do.
func (c *client) sendAgain(ctx context.Context, topic string, out []outgoing) (resp *rmqv2.SendMessageResponse, o history.Outcome) {
	for range 1 + c.rng.IntN(6) {
		if resp, o = c.send(ctx, topic, out); o != history.Unknown || ctx.Err() != nil {
			return resp, o
		}
		c.wait(ctx, 30*time.Millisecond)
	}
	return resp, o
}

// got is a message that came.
type got struct {
	topic string
	msg   *rmqv2.Message
	lease int
}

func (g got) sys() *rmqv2.SystemProperties { return g.msg.GetSystemProperties() }

// item is a delivery as the history takes it.
func (c *client) item(topic string, m *rmqv2.Message) history.Item {
	sys := m.GetSystemProperties()
	it := history.Item{
		ID: sys.GetMessageId(), Body: digest(m.GetBody()), Key: sys.GetMessageGroup() + sys.GetLiteTopic(), Attempt: sys.GetDeliveryAttempt(), Outcome: history.OK,
		Place: history.Place{Topic: topic, Broker: "dev", Queue: sys.GetQueueId(), Offset: sys.GetQueueOffset()},
	}
	if c.l.at.Names != nil {
		it.Place.Broker = c.l.at.Names[sys.GetStoreHost()]
	}
	return it
}

// invisible is the lease of the load's receives: the shortest that the protocol takes.
const invisible = 10 * time.Second

// session is the lease of a consumer whose leases last as long as it is heard of: this long after a start of
// the service at least, which forgets whom it heard.
const session = 50 * time.Second

// receive makes one receive.
func (c *client) receive(ctx context.Context, group, topic string, most int, lease time.Duration) ([]got, history.Outcome) {
	op := c.l.rec.Begin(&history.Op{Kind: history.Receive, Client: c.name, Group: group, Topic: topic, For: history.Time(lease)})
	call, cancel := c.call(ctx, 5300*time.Millisecond)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)() // a poll that waits is not worth waiting for
	req := &rmqv2.ReceiveMessageRequest{
		Group: resource(group), MessageQueue: &rmqv2.MessageQueue{Topic: resource(topic)},
		FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"}, BatchSize: int32(most),
		InvisibleDuration: durationpb.New(lease), LongPollingTimeout: durationpb.New(5 * time.Second),
	}
	if lease == session {
		req.AutoRenew, req.InvisibleDuration = true, nil
	}
	st, err := c.rpc().ReceiveMessage(call, req)
	var all []got
	var last *rmqv2.Status
	for err == nil {
		var resp *rmqv2.ReceiveMessageResponse
		if resp, err = st.Recv(); err != nil {
			break
		}
		if s := resp.GetStatus(); s != nil {
			last = s
		}
		if m := resp.GetMessage(); m != nil {
			all = append(all, got{topic, m, c.l.rec.Came(op, c.item(topic, m))})
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	o, code := outcome(last, err)
	if last.GetCode() == rmqv2.Code_MESSAGE_NOT_FOUND && err == nil {
		o = history.OK
	}
	c.l.rec.End(op, o, code, nil)
	return all, o
}
