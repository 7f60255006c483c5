package blackbox

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// eachMethod calls f for every method of the service.
func eachMethod(f func(name string)) {
	for i := range methods().Len() {
		f(string(methods().Get(i).Name()))
	}
}

// TestNoClientID: every call needs to say which client it comes from, before anything else is looked at.
func TestNoClientID(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(1)
	eachMethod(func(method string) {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			const want = "CLIENT_ID_REQUIRED"
			good, empty := request(method, p.topic, p.group), newMessage(methodOf(method).Input().FullName())
			for _, req := range []proto.Message{good, empty} {
				c.with("x-mq-client-id", "").do(t.Context(), method, req).is(t, want)
				c.with("x-mq-client-id", "   ").do(t.Context(), method, req).is(t, want)
				c.bare().do(t.Context(), method, req).is(t, want)
			}
		})
	})
}

// TestEmptyRequests leaves everything but the client id out.
func TestEmptyRequests(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	for method, want := range map[string]string{
		"QueryRoute": "ILLEGAL_TOPIC", "QueryAssignment": "ILLEGAL_TOPIC", "SendMessage": "MESSAGE_CORRUPTED", "ReceiveMessage": "ILLEGAL_TOPIC",
		"AckMessage": "ILLEGAL_TOPIC", "ChangeInvisibleDuration": "ILLEGAL_TOPIC", "Heartbeat": "UNRECOGNIZED_CLIENT_TYPE|OK|ILLEGAL_CONSUMER_GROUP",
		"NotifyClientTermination": "OK|UNRECOGNIZED_CLIENT_TYPE", "Telemetry": "",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			c.raw(t.Context(), method, nil).is(t, want)
		})
	}
}

// TestOddHeaders: nothing but the client id is required, and no value of a header harms.
func TestOddHeaders(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	for _, header := range []string{"x-mq-language", "x-mq-client-version", "x-mq-protocol", "x-mq-date-time", "x-mq-namespace", "authorization", "x-mq-request-id"} {
		for what, value := range map[string]string{
			"none": "", "KLINGON": "KLINGON", "lower case": "java", "number": "-1", "4 KiB": strings.Repeat("x", 4<<10), "percent": "%00%ff", "blank": "  ",
		} {
			t.Run(header+"/"+what, func(t *testing.T) {
				t.Parallel()
				odd := c.with("x-mq-client-id", "odd@"+strings.ReplaceAll(t.Name(), " ", "_")).with(header, value)
				odd.do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, "")).is(t, "OK")
				odd.do(t.Context(), "Telemetry", settingsCommand(consumerSettings(p.topic, p.group))).is(t, "OK")
				odd.do(t.Context(), "Heartbeat", request("Heartbeat", "", p.group)).is(t, "OK")
				odd.do(t.Context(), "NotifyClientTermination", request("NotifyClientTermination", "", p.group)).is(t, "OK")
				p.send(t.Context(), odd, p.message("odd")).is(t, "OK")
			})
		}
	}
}

// TestOddClientIDs: a client id is any text.
func TestOddClientIDs(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(4)
	for what, id := range map[string]string{
		"signs": "host@1#2_3%|/\\\"'", "one letter": "x", "4 KiB": strings.Repeat("i", 4<<10), "spaces": " a b ",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			odd := c.with("x-mq-client-id", id)
			odd.do(t.Context(), "Heartbeat", request("Heartbeat", "", p.group)).is(t, "OK")
			a := p.receive(t.Context(), odd, func(r *rmqv2.ReceiveMessageRequest) { r.BatchSize, r.AutoRenew = 1, true })
			if a.is(t, "OK"); len(a.messages) == 1 {
				p.ack(t.Context(), odd, a.messages).is(t, "OK")
			}
			odd.do(t.Context(), "NotifyClientTermination", request("NotifyClientTermination", "", p.group)).is(t, "OK")
		})
	}
}

// TestUnknownEnums puts numbers that no enum has into every enum field of good requests.
func TestUnknownEnums(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	producer, consumer := settingsCommand(producerSettings(p.topic)), settingsCommand(consumerSettings(p.topic, p.group))
	for _, x := range []struct {
		method string
		req    proto.Message
	}{
		{"QueryRoute", request("QueryRoute", p.topic, "")},
		{"QueryAssignment", request("QueryAssignment", p.topic, p.group)},
		{"Heartbeat", request("Heartbeat", "", p.group)},
		{"Telemetry", producer},
		{"Telemetry", consumer},
		{"EndTransaction", &rmqv2.EndTransactionRequest{Topic: resource(p.topic), MessageId: "x", TransactionId: "x", Resolution: 1, Source: 1}},
		{"SyncLiteSubscription", &rmqv2.SyncLiteSubscriptionRequest{Action: 1, Topic: resource(p.topic), Group: resource(p.group)}},
	} {
		eachEnum(x.req.ProtoReflect(), func(where string, set func(protoreflect.EnumNumber)) {
			for _, n := range []protoreflect.EnumNumber{0, 99, -1, 1<<31 - 1, -1 << 31} {
				set(n)
				c.do(t.Context(), x.method, x.req).is(t, "OK|UNRECOGNIZED_CLIENT_TYPE|ILLEGAL_ACCESS_POINT|BAD_REQUEST|UNSUPPORTED|INVALID_TRANSACTION_ID|ILLEGAL_TOPIC|InvalidArgument")
			}
		})
	}
	for _, typ := range []rmqv2.ClientType{0, rmqv2.ClientType_PRODUCER, 99, -1} {
		s := consumerSettings(p.topic, p.group)
		s.ClientType = &typ
		c.do(t.Context(), "Telemetry", settingsCommand(s)).is(t, "InvalidArgument")
	}
	c.do(t.Context(), "Telemetry", settingsCommand(&rmqv2.Settings{})).is(t, "InvalidArgument")
	pull := consumerSettings(p.topic, p.group)
	pull.ClientType = rmqv2.ClientType_PULL_CONSUMER.Enum()
	for _, s := range []*rmqv2.Settings{pull, consumerSettings(p.topic, p.group)} {
		c.do(t.Context(), "Telemetry", settingsCommand(s)).is(t, "OK")
	}
}

// eachEnum calls f for every enum field of m and its parts, and puts the field back afterwards.
func eachEnum(m protoreflect.Message, f func(where string, set func(protoreflect.EnumNumber))) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
		case fd.IsList() && fd.Message() != nil:
			for i := range v.List().Len() {
				eachEnum(v.List().Get(i).Message(), f)
			}
		case fd.Message() != nil:
			eachEnum(v.Message(), f)
		case fd.Enum() != nil && !fd.IsList():
			f(string(fd.FullName()), func(n protoreflect.EnumNumber) { m.Set(fd, protoreflect.ValueOfEnum(n)) })
			m.Set(fd, v)
		}
		return true
	})
}

// TestStrayCommands sends commands on a telemetry stream that a client has no reason to send.
func TestStrayCommands(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	nonce := strings.Repeat("n", 1<<20)
	for name, cmd := range map[string]*rmqv2.TelemetryCommand{
		"verify result": {Command: &rmqv2.TelemetryCommand_VerifyMessageResult{VerifyMessageResult: &rmqv2.VerifyMessageResult{Nonce: nonce}}},
		"thread dump":   {Command: &rmqv2.TelemetryCommand_ThreadStackTrace{ThreadStackTrace: &rmqv2.ThreadStackTrace{Nonce: "x", ThreadStackTrace: &nonce}}},
		"a server's":    {Command: &rmqv2.TelemetryCommand_PrintThreadStackTraceCommand{PrintThreadStackTraceCommand: &rmqv2.PrintThreadStackTraceCommand{Nonce: "x"}}},
		"a status":      {Status: &rmqv2.Status{Code: 99999}},
		"nothing":       {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.do(t.Context(), "Telemetry", cmd).is(t, "")
		})
	}
	many := consumerSettings(p.topic, p.group)
	for range 5000 {
		many.GetSubscription().Subscriptions = append(many.GetSubscription().Subscriptions, many.GetSubscription().Subscriptions[0])
	}
	c.do(t.Context(), "Telemetry", settingsCommand(many)).is(t, "OK|InvalidArgument")
}
