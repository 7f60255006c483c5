package blackbox

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// illegalTopics are names that no topic may have.
var illegalTopics = map[string]string{
	"empty": "", "blank": "   ", "tab": "\t", "space inside": "a b", "dot": "a.b", "slash": "a/b", "at": "a@b", "not ASCII": "thème", "emoji": "🚀",
	"control": "a\x01b", "NUL": "a\x00b", "newline at the end": "topic\n", "128 letters": strings.Repeat("a", 128), "1000 letters": strings.Repeat("a", 1000),
	"1 MiB": strings.Repeat("a", 1<<20), "template": "TBW102", "schedule": "SCHEDULE_TOPIC_XXXX", "benchmark": "BenchmarkTest",
	"half": "RMQ_SYS_TRANS_HALF_TOPIC", "trace": "RMQ_SYS_TRACE_TOPIC", "op half": "RMQ_SYS_TRANS_OP_HALF_TOPIC", "check": "TRANS_CHECK_MAX_TIME_TOPIC",
	"self test": "SELF_TEST_TOPIC", "offset moved": "OFFSET_MOVED_EVENT", "checkpoint": "CHECKPOINT_TOPIC", "system prefix": "rmq_sys_x",
}

// illegalGroups are names that no group may have.
var illegalGroups = map[string]string{
	"empty": "", "blank": "  ", "space inside": "a b", "dot": "a.b", "not ASCII": "grüppe", "control": "a\x7fb", "NUL": "a\x00b",
	"121 letters": strings.Repeat("g", 121), "1 MiB": strings.Repeat("g", 1<<20), "system": "CID_RMQ_SYS_X",
}

// legalNames are legal and name nothing.
var legalNames = map[string]string{
	"absent": "absent", "percent": "ns%absent", "bar": "a|b", "all kinds": "aZ09_-%|", "retry": "%RETRY%g_t", "dead letters": "%DLQ%g", "one letter": "x",
}

// named are the methods that take a topic or a group, with what a bad one is answered with. A handle
// that fits nothing is what is wrong with an ack where topic and group are not known.
var named = []struct {
	method                             string
	illegalTopic, absentTopic          string
	illegalGroup, absentGroup, noGroup string
}{
	{"QueryRoute", "ILLEGAL_TOPIC", "TOPIC_NOT_FOUND", "", "", ""},
	{"QueryAssignment", "ILLEGAL_TOPIC", "TOPIC_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP", "OK", "ILLEGAL_CONSUMER_GROUP"},
	{"SendMessage", "ILLEGAL_TOPIC", "TOPIC_NOT_FOUND", "", "", ""},
	{"ReceiveMessage", "ILLEGAL_TOPIC", "TOPIC_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP", "CONSUMER_GROUP_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP"},
	{
		"AckMessage", "ILLEGAL_TOPIC", "INVALID_RECEIPT_HANDLE|TOPIC_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP",
		"INVALID_RECEIPT_HANDLE|CONSUMER_GROUP_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP",
	},
	{
		"ChangeInvisibleDuration", "ILLEGAL_TOPIC", "INVALID_RECEIPT_HANDLE|TOPIC_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP",
		"INVALID_RECEIPT_HANDLE|CONSUMER_GROUP_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP",
	},
	{"Heartbeat", "", "", "ILLEGAL_CONSUMER_GROUP", "ILLEGAL_CONSUMER_GROUP|CONSUMER_GROUP_NOT_FOUND", "ILLEGAL_CONSUMER_GROUP"},
	{"NotifyClientTermination", "", "", "OK|ILLEGAL_CONSUMER_GROUP", "OK", "OK|ILLEGAL_CONSUMER_GROUP"},
	{"Telemetry", "", "", "InvalidArgument", "InvalidArgument", "InvalidArgument"},
}

func TestNames(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(3)
	for _, n := range named {
		try := func(what, topic, group, want string) {
			if want == "" {
				return
			}
			t.Run(n.method+"/"+what, func(t *testing.T) {
				t.Parallel()
				c.do(t.Context(), n.method, request(n.method, topic, group)).is(t, want)
			})
		}
		for what, name := range illegalTopics {
			try("topic "+what, name, p.group, n.illegalTopic)
		}
		for what, name := range illegalGroups {
			try("group "+what, p.topic, name, n.illegalGroup)
		}
		for what, name := range legalNames {
			try("topic "+what, name, p.group, n.absentTopic)
			try("group "+what, p.topic, name, n.absentGroup)
		}
		try("topic 127 letters", strings.Repeat("a", 127), p.group, n.absentTopic)
		try("group 120 letters", p.topic, strings.Repeat("g", 120), n.absentGroup)
		try("topic as long as a group", strings.Repeat("a", 121), p.group, n.absentTopic)
	}
}

// TestNoNames leaves topic, group or the message that holds them out.
func TestNoNames(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(1)
	for _, n := range named {
		good := func() proto.Message { return request(n.method, p.topic, p.group) }
		t.Run(n.method, func(t *testing.T) {
			t.Parallel()
			fields := good().ProtoReflect().Descriptor().Fields()
			if n.noGroup != "" && fields.ByName("group") != nil {
				c.do(t.Context(), n.method, without(good(), "group")).is(t, n.noGroup)
			}
			if fields.ByName("topic") != nil {
				c.do(t.Context(), n.method, without(good(), "topic")).is(t, "ILLEGAL_TOPIC")
			}
		})
	}
	c.do(t.Context(), "ReceiveMessage", without(receiveRequest(p.topic, p.group), "message_queue")).is(t, "ILLEGAL_TOPIC")
	c.do(t.Context(), "SendMessage", &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{{}}}).is(t, "ILLEGAL_TOPIC")
	c.do(t.Context(), "SendMessage", &rmqv2.SendMessageRequest{}).is(t, "MESSAGE_CORRUPTED")
}

// TestSettingsNames sends settings that name what no settings may.
func TestSettingsNames(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	for what, name := range illegalTopics {
		t.Run("publishing "+what, func(t *testing.T) {
			t.Parallel()
			c.do(t.Context(), "Telemetry", settingsCommand(producerSettings(name))).is(t, "InvalidArgument")
		})
		t.Run("subscription "+what, func(t *testing.T) {
			t.Parallel()
			c.do(t.Context(), "Telemetry", settingsCommand(consumerSettings(name, p.group))).is(t, "OK|InvalidArgument")
		})
	}
	c.do(t.Context(), "Telemetry", settingsCommand(producerSettings("absent"))).is(t, "OK")
	c.do(t.Context(), "Telemetry", settingsCommand(consumerSettings("absent", p.group))).is(t, "OK")
}

// TestKnownClientNames makes the calls of a client whose settings are known.
func TestKnownClientNames(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	settle := func(t *testing.T, c *client) {
		c.do(t.Context(), "Telemetry", settingsCommand(consumerSettings(p.topic, p.group))).is(t, "OK")
	}
	for what, name := range illegalGroups {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			known := connect(t, sharedDev(t).grpc)
			settle(t, known)
			known.do(t.Context(), "Heartbeat", request("Heartbeat", "", name)).is(t, "ILLEGAL_CONSUMER_GROUP")
			known.do(t.Context(), "NotifyClientTermination", request("NotifyClientTermination", "", name)).is(t, "OK|ILLEGAL_CONSUMER_GROUP")
		})
	}
}

// TestInvalidUTF8 puts bytes that are no text where text must be.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	const marker = "MARKER"
	raw := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(marker)) {
			t.Fatalf("no marker in %v", m)
		}
		return bytes.ReplaceAll(b, []byte(marker), []byte("MA\xff\xfeER"))
	}
	message := func(change func(*rmqv2.Message)) proto.Message {
		m := p.message("text")
		change(m)
		return &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{m}}
	}
	const refused = "Unknown|Internal|InvalidArgument"
	for _, x := range []struct {
		name, method string
		req          proto.Message
		want         string
	}{
		{"topic of a route", "QueryRoute", request("QueryRoute", marker, ""), refused + "|ILLEGAL_TOPIC"},
		{"topic of a send", "SendMessage", message(func(m *rmqv2.Message) { m.Topic.Name = marker }), refused + "|ILLEGAL_TOPIC"},
		{"tag", "SendMessage", message(func(m *rmqv2.Message) { m.SystemProperties.Tag = new(marker) }), refused + "|ILLEGAL_MESSAGE_TAG"},
		{"key", "SendMessage", message(func(m *rmqv2.Message) { m.SystemProperties.Keys = []string{marker} }), refused + "|ILLEGAL_MESSAGE_KEY"},
		{"message id", "SendMessage", message(func(m *rmqv2.Message) { m.SystemProperties.MessageId = marker }), refused + "|ILLEGAL_MESSAGE_ID"},
		{"message group", "SendMessage", message(func(m *rmqv2.Message) { m.SystemProperties.MessageGroup = new(marker) }), refused + "|ILLEGAL_MESSAGE_GROUP"},
		{"property key", "SendMessage", message(func(m *rmqv2.Message) { m.UserProperties = map[string]string{marker: "v"} }), refused + "|ILLEGAL_MESSAGE_PROPERTY_KEY"},
		{"property value", "SendMessage", message(func(m *rmqv2.Message) { m.UserProperties = map[string]string{"k": marker} }), refused + "|ILLEGAL_MESSAGE_PROPERTY_KEY"},
		{"born host", "SendMessage", message(func(m *rmqv2.Message) { m.SystemProperties.BornHost = marker }), refused},
		{"trace", "SendMessage", message(func(m *rmqv2.Message) { m.SystemProperties.TraceContext = new(marker) }), refused},
		{"topic of a receive", "ReceiveMessage", receiveRequest(marker, p.group), refused + "|ILLEGAL_TOPIC"},
		{"group of a receive", "ReceiveMessage", receiveRequest(p.topic, marker), refused + "|ILLEGAL_CONSUMER_GROUP"},
		{"handle of an ack", "AckMessage", &rmqv2.AckMessageRequest{
			Topic: resource(p.topic), Group: resource(p.group), Entries: []*rmqv2.AckMessageEntry{{MessageId: "x", ReceiptHandle: marker}},
		}, refused + "|INVALID_RECEIPT_HANDLE"},
		{"handle of a change", "ChangeInvisibleDuration", changeRequest(p.topic, p.group, marker, time.Second), refused + "|INVALID_RECEIPT_HANDLE"},
		{"group of settings", "Telemetry", settingsCommand(consumerSettings(p.topic, marker)), refused},
		{"group of a heartbeat", "Heartbeat", request("Heartbeat", "", marker), refused + "|ILLEGAL_CONSUMER_GROUP"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c.raw(t.Context(), x.method, raw(x.req)).is(t, x.want)
		})
	}
}
