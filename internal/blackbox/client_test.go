package blackbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

// client is one connection to a server. Every call is made as raw bytes, the same way for all methods,
// so that a test can send whatever it wants.
type client struct {
	conn  *grpc.ClientConn
	admin adminv1.AdminServiceClient
	meta  metadata.MD // of every call
}

func connect(t *testing.T, addr string, more ...grpc.DialOption) *client {
	t.Helper()
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 100 * time.Millisecond}, MinConnectTimeout: 5 * time.Second}),
	}, more...)
	conn, err := grpc.NewClient("passthrough:///"+addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{conn: conn, admin: adminv1.NewAdminServiceClient(conn), meta: headers("client@" + t.Name())}
}

// headers are those of a real client.
func headers(id string) metadata.MD {
	return metadata.Pairs("x-mq-client-id", strings.ReplaceAll(id, " ", "_"), "x-mq-language", "GO", "x-mq-client-version", "5.1.3", "x-mq-protocol", "v2")
}

// with returns a client that differs in one header; an empty value leaves it out.
func (c *client) with(header, value string) *client {
	d := *c
	d.meta = c.meta.Copy()
	d.meta.Delete(header)
	if value != "" {
		d.meta.Set(header, value)
	}
	return &d
}

// bare returns a client that sends no header.
func (c *client) bare() *client {
	d := *c
	d.meta = nil
	return &d
}

// answer is what came of a call.
type answer struct {
	code     codes.Code
	text     string
	status   *rmqv2.Status
	entries  []*rmqv2.Status
	offsets  []int64 // of entries that were sent
	messages []*rmqv2.Message
	replies  []proto.Message
	took     time.Duration
}

// name is the gRPC code if the call failed as such, otherwise the public code, "" if there was none.
func (a answer) name() string {
	switch {
	case a.code != codes.OK:
		return a.code.String()
	case a.status == nil:
		return ""
	}
	return a.status.GetCode().String()
}

// is checks the outcome: wanted names are separated by |.
func (a answer) is(t *testing.T, wanted string) {
	t.Helper()
	for w := range strings.SplitSeq(wanted, "|") {
		if a.name() == w {
			return
		}
	}
	t.Errorf("answered %q (%s%s), want %s", a.name(), a.text, a.status.GetMessage(), wanted)
}

const (
	service = "/apache.rocketmq.v2.MessagingService/"
	// patience is the deadline of calls that set none.
	patience = 15 * time.Second
)

// do calls a method of the public service.
func (c *client) do(ctx context.Context, method string, req proto.Message) answer {
	b, err := proto.Marshal(req)
	if err != nil {
		return answer{code: codes.Unknown, text: "marshalling: " + err.Error()}
	}
	return c.raw(ctx, method, b)
}

// raw calls a method with any bytes as its request, and reads all that comes.
func (c *client) raw(ctx context.Context, method string, req []byte) answer {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	began := time.Now()
	a := answer{}
	st, err := c.open(ctx, method, req)
	for err == nil {
		var frame []byte
		if err = st.RecvMsg(&frame); err == nil {
			a.add(method, frame)
		}
	}
	if !errors.Is(err, io.EOF) {
		a.code, a.text = status.Code(err), status.Convert(err).Message()
	}
	a.took = time.Since(began)
	return a
}

// open starts a call, with a request that is ended.
func (c *client) open(ctx context.Context, method string, req []byte) (grpc.ClientStream, error) {
	st, err := c.conn.NewStream(metadata.NewOutgoingContext(ctx, c.meta), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		service+method, grpc.ForceCodec(bytesCodec{}))
	if err != nil {
		return nil, err
	}
	if err := st.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // EOF: the reason is in RecvMsg
		return nil, err
	}
	return st, st.CloseSend()
}

// add reads one frame of a reply.
func (a *answer) add(method string, frame []byte) {
	m := newReply(method)
	if err := proto.Unmarshal(frame, m); err != nil {
		a.code, a.text = codes.DataLoss, "the reply is damaged: "+err.Error()
		return
	}
	a.replies = append(a.replies, m)
	if s, ok := m.(interface{ GetStatus() *rmqv2.Status }); ok && s.GetStatus() != nil {
		a.status = s.GetStatus()
	}
	switch r := m.(type) {
	case *rmqv2.ReceiveMessageResponse:
		if r.GetMessage() != nil {
			a.messages = append(a.messages, r.GetMessage())
		}
	case *rmqv2.SendMessageResponse:
		for _, e := range r.GetEntries() {
			a.entries, a.offsets = append(a.entries, e.GetStatus()), append(a.offsets, e.GetOffset())
		}
	case *rmqv2.AckMessageResponse:
		for _, e := range r.GetEntries() {
			a.entries = append(a.entries, e.GetStatus())
		}
	}
}

// newReply returns an empty message of the type that a method answers with.
func newReply(method string) proto.Message {
	m := methodOf(method)
	if m == nil {
		return &rmqv2.Status{}
	}
	return newMessage(m.Output().FullName())
}

func newMessage(name protoreflect.FullName) proto.Message {
	typ, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		panic(err)
	}
	return typ.New().Interface()
}

func methods() protoreflect.MethodDescriptors {
	return rmqv2.File_apache_rocketmq_v2_service_proto.Services().ByName("MessagingService").Methods()
}

func methodOf(name string) protoreflect.MethodDescriptor {
	return methods().ByName(protoreflect.Name(name))
}

// bytesCodec passes bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("cannot send %T", v)
	}
	return b, nil
}

func (bytesCodec) Unmarshal(b []byte, v any) error {
	p, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("cannot read into %T", v)
	}
	*p = append([]byte(nil), b...)
	return nil
}
