package server

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

type edit = func(*rmqv2.Message)

func sys(f func(*rmqv2.SystemProperties)) edit {
	return func(m *rmqv2.Message) { f(m.SystemProperties) }
}

func to(topic string) edit { return func(m *rmqv2.Message) { m.Topic.Name = topic } }

func body(n int) edit { return func(m *rmqv2.Message) { m.Body = make([]byte, n) } }

func property(k, v string) edit {
	return func(m *rmqv2.Message) {
		if m.UserProperties == nil {
			m.UserProperties = map[string]string{}
		}
		m.UserProperties[k] = v
	}
}

func group(g string) edit {
	return func(m *rmqv2.Message) { m.Topic.Name = "fifo"; m.SystemProperties.MessageGroup = &g }
}

func tag(s string) edit { return sys(func(p *rmqv2.SystemProperties) { p.Tag = &s }) }

func keys(k ...string) edit { return sys(func(p *rmqv2.SystemProperties) { p.Keys = k }) }

func many(n int) edit {
	return func(m *rmqv2.Message) {
		for i := range n {
			property(strings.Repeat("k", i+1), "")(m)
		}
	}
}

func at(ts *timestamppb.Timestamp) edit {
	return func(m *rmqv2.Message) { m.Topic.Name = "delay"; m.SystemProperties.DeliveryTimestamp = ts }
}

func in(d time.Duration) edit { return at(timestamppb.New(testNow.Add(d))) }

func join(edits ...edit) edit {
	return func(m *rmqv2.Message) {
		for _, e := range edits {
			e(m)
		}
	}
}

func none(*rmqv2.Message) {}

// TestSendChecks walks the limits of a send, both sides of each. Codes are those of the reference
// server unless it answers with an internal error.
func TestSendChecks(t *testing.T) {
	letters := func(n int) string { return strings.Repeat("a", n) }
	for _, tc := range []struct {
		name string
		want rmqv2.Code
		msgs []edit
	}{
		{"plain", rmqv2.Code_OK, []edit{none}},
		{"no message", rmqv2.Code_MESSAGE_CORRUPTED, nil},
		{"message without a field", rmqv2.Code_ILLEGAL_TOPIC, []edit{func(m *rmqv2.Message) { proto.Reset(m) }}},
		{"no topic", rmqv2.Code_ILLEGAL_TOPIC, []edit{func(m *rmqv2.Message) { m.Topic = nil }}},
		{"no system properties", rmqv2.Code_ILLEGAL_MESSAGE_ID, []edit{func(m *rmqv2.Message) { m.SystemProperties = nil }}},
		{"namespace", rmqv2.Code_OK, []edit{func(m *rmqv2.Message) { m.Topic.ResourceNamespace = "ns" }}},
		{"missing topic", rmqv2.Code_TOPIC_NOT_FOUND, []edit{to("missing")}},
		{"missing topic of the longest name", rmqv2.Code_TOPIC_NOT_FOUND, []edit{to(letters(127))}},
		{"topic name too long", rmqv2.Code_ILLEGAL_TOPIC, []edit{to(letters(128))}},
		{"missing retry topic", rmqv2.Code_TOPIC_NOT_FOUND, []edit{to("%RETRY%g")}},
		{"topic without queues", rmqv2.Code_FORBIDDEN, []edit{to("nowhere")}},
		{"system topic", rmqv2.Code_ILLEGAL_TOPIC, []edit{to("TBW102")}},
		{"dead-letter topic", rmqv2.Code_OK, []edit{to("%DLQ%g")}},

		{"empty body", rmqv2.Code_MESSAGE_BODY_EMPTY, []edit{body(0)}},
		{"longest body", rmqv2.Code_OK, []edit{body(4 << 20)}},
		{"body too long", rmqv2.Code_MESSAGE_BODY_TOO_LARGE, []edit{body(4<<20 + 1)}},
		{"bodies too long together", rmqv2.Code_PAYLOAD_TOO_LARGE, []edit{body(4 << 20), body(1)}},
		{"bodies just fit", rmqv2.Code_OK, []edit{body(4<<20 - 1), body(1)}},

		{"most properties", rmqv2.Code_OK, []edit{many(128)}},
		{"too many properties", rmqv2.Code_MESSAGE_PROPERTIES_TOO_LARGE, []edit{many(129)}},
		{"reserved property", rmqv2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, []edit{property("KEYS", "v")}},
		{"reserved property in lower case", rmqv2.Code_OK, []edit{property("keys", "v")}},
		{"sharding key is a property like any other", rmqv2.Code_OK, []edit{property("__SHARDINGKEY", "v")}},
		{"empty property key", rmqv2.Code_OK, []edit{property("", "v")}},
		{"blank property key", rmqv2.Code_OK, []edit{property("  ", "v")}},
		{"empty property value", rmqv2.Code_OK, []edit{property("k", "")}},
		{"tab in a property", rmqv2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, []edit{property("k", "a\tb")}},
		{"control character of Latin-1 in a key", rmqv2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, []edit{property("a\u0085", "")}},
		{"delete in a key", rmqv2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, []edit{property("a\u007f", "")}},
		{"letters outside ASCII", rmqv2.Code_OK, []edit{property("ключ", "значение\u00a0")}},
		{"16 KiB of properties", rmqv2.Code_OK, []edit{property("k", letters(16<<10-1-len("tag")))}},
		{"over 16 KiB of properties", rmqv2.Code_MESSAGE_PROPERTIES_TOO_LARGE, []edit{property("k", letters(16<<10-len("tag")))}},
		{"keys count too", rmqv2.Code_MESSAGE_PROPERTIES_TOO_LARGE, []edit{keys(letters(8<<10), letters(8<<10))}},
		{"trace context of 33 KiB", rmqv2.Code_MESSAGE_PROPERTIES_TOO_LARGE, []edit{sys(func(p *rmqv2.SystemProperties) { p.TraceContext = new(letters(33 << 10)) })}},

		{"no tag", rmqv2.Code_OK, []edit{sys(func(p *rmqv2.SystemProperties) { p.Tag = nil })}},
		{"empty tag", rmqv2.Code_OK, []edit{tag("")}},
		{"blank tag", rmqv2.Code_ILLEGAL_MESSAGE_TAG, []edit{tag(" \u3000")}},
		{"tag with a bar", rmqv2.Code_ILLEGAL_MESSAGE_TAG, []edit{tag("a|b")}},
		{"tag with a control character", rmqv2.Code_ILLEGAL_MESSAGE_TAG, []edit{tag("a\x02b")}},
		{"star as a tag", rmqv2.Code_OK, []edit{tag("*")}},
		{"empty key", rmqv2.Code_OK, []edit{keys("")}},
		{"key with a space", rmqv2.Code_OK, []edit{keys("a b")}},
		{"second key blank", rmqv2.Code_ILLEGAL_MESSAGE_KEY, []edit{keys("a", " ")}},
		{"key with a line end", rmqv2.Code_ILLEGAL_MESSAGE_KEY, []edit{keys("a\n")}},
		{"blank id", rmqv2.Code_ILLEGAL_MESSAGE_ID, []edit{sys(func(p *rmqv2.SystemProperties) { p.MessageId = "  " })}},
		{"id with a control character", rmqv2.Code_OK, []edit{sys(func(p *rmqv2.SystemProperties) { p.MessageId = "a\x01" })}},

		{"blank message group", rmqv2.Code_ILLEGAL_MESSAGE_GROUP, []edit{group("  ")}},
		{"longest message group", rmqv2.Code_OK, []edit{group(letters(63))}},
		{"message group too long", rmqv2.Code_ILLEGAL_MESSAGE_GROUP, []edit{group(letters(64))}},
		{"message group with a control character", rmqv2.Code_ILLEGAL_MESSAGE_GROUP, []edit{group("a\x00")}},

		{"longest recovery", rmqv2.Code_OK, []edit{join(to("tx"), recovery(time.Hour))}},
		{"recovery too long", rmqv2.Code_BAD_REQUEST, []edit{join(to("tx"), recovery(time.Hour+1))}},
		{"due in 40 days", rmqv2.Code_OK, []edit{in(40 * 24 * time.Hour)}},
		{"due in 41 days", rmqv2.Code_ILLEGAL_DELIVERY_TIME, []edit{in(41 * 24 * time.Hour)}},
		{"due in the past", rmqv2.Code_OK, []edit{in(-time.Hour)}},
		{"due at time 0", rmqv2.Code_OK, []edit{at(&timestamppb.Timestamp{})}},
		{"due before 1970", rmqv2.Code_OK, []edit{at(&timestamppb.Timestamp{Seconds: -1})}},
		{"due at no time", rmqv2.Code_ILLEGAL_DELIVERY_TIME, []edit{at(&timestamppb.Timestamp{Nanos: -1})}},
		{"due after the end of time", rmqv2.Code_ILLEGAL_DELIVERY_TIME, []edit{at(&timestamppb.Timestamp{Seconds: 1 << 60})}},
		{"born at no time", rmqv2.Code_BAD_REQUEST, []edit{sys(func(p *rmqv2.SystemProperties) { p.BornTimestamp = &timestamppb.Timestamp{Nanos: 1e9} })}},
		{"priority below 0", rmqv2.Code_BAD_REQUEST, []edit{join(to("prio"), priority(-1))}},

		{"second topic differs", rmqv2.Code_MESSAGE_CORRUPTED, []edit{none, to("mixed")}},
		{"second namespace differs", rmqv2.Code_MESSAGE_CORRUPTED, []edit{none, func(m *rmqv2.Message) { m.Topic.ResourceNamespace = "x" }}},
		{"second body empty", rmqv2.Code_MESSAGE_BODY_EMPTY, []edit{none, body(0)}},
		{"second without id", rmqv2.Code_ILLEGAL_MESSAGE_ID, []edit{none, sys(func(p *rmqv2.SystemProperties) { p.MessageId = "" })}},
		{"second of another type", rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, []edit{none, join(in(time.Minute), to("normal"))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil)
			r := w.send(t, tc.msgs...)
			if r.GetStatus().GetCode() != tc.want {
				t.Fatalf("answer is %v, want %v", r.GetStatus(), tc.want)
			}
			if tc.want == rmqv2.Code_OK {
				return
			}
			if len(r.GetEntries()) != 0 || len(w.brokers[1].sent)+len(w.brokers[2].sent) != 0 || r.GetStatus().GetMessage() == "" {
				t.Errorf("a refusal with entries, without text, or stored all the same: %v", r)
			}
		})
	}
}

func recovery(d time.Duration) edit {
	return sys(func(p *rmqv2.SystemProperties) {
		p.MessageType, p.OrphanedTransactionRecoveryDuration = rmqv2.MessageType_TRANSACTION, durationpb.New(d)
	})
}

func priority(n int32) edit { return sys(func(p *rmqv2.SystemProperties) { p.Priority = &n }) }

// TestTypeOfMessageAndTopic crosses kinds of messages with types of topics. What the sender calls its
// message counts only for a transaction.
func TestTypeOfMessageAndTopic(t *testing.T) {
	kinds := map[string]edit{
		"normal": none,
		"fifo":   sys(func(p *rmqv2.SystemProperties) { p.MessageGroup = new("g") }),
		"delay":  sys(func(p *rmqv2.SystemProperties) { p.DeliveryTimestamp = timestamppb.New(testNow) }),
		"tx":     sys(func(p *rmqv2.SystemProperties) { p.MessageType = rmqv2.MessageType_TRANSACTION }),
		"lite":   sys(func(p *rmqv2.SystemProperties) { p.LiteTopic = new("l") }),
		"prio":   priority(0),
	}
	for kind, change := range kinds {
		for topic := range kinds {
			want := rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
			if topic == kind {
				want = rmqv2.Code_OK
			}
			if r := newWorld(t, nil).send(t, join(change, to(topic))); r.GetStatus().GetCode() != want {
				t.Errorf("%s message to %s topic: %v, want %v", kind, topic, r.GetStatus(), want)
			}
		}
	}
	for _, says := range []rmqv2.MessageType{0, rmqv2.MessageType_FIFO, rmqv2.MessageType_DELAY, rmqv2.MessageType_LITE, rmqv2.MessageType_PRIORITY, 99} {
		w := newWorld(t, nil)
		r := w.send(t, sys(func(p *rmqv2.SystemProperties) { p.MessageType = says }))
		if r.GetStatus().GetCode() != rmqv2.Code_OK || w.brokers[1].sent[0].Messages[0].Type != 1 {
			t.Errorf("a plain message called %v: %v", says, r.GetStatus())
		}
	}
	both := join(kinds["fifo"], kinds["delay"])
	if r := newWorld(t, nil).send(t, join(both, to("fifo"))); r.GetStatus().GetCode() != rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE {
		t.Errorf("a message with group and time is no FIFO message: %v", r.GetStatus())
	}
}

// FuzzSendMessage gives any bytes to the handler: it completes the call once and does not panic.
func FuzzSendMessage(f *testing.F) {
	for _, e := range []edit{none, many(3), group("g"), in(time.Minute), keys("a", "b"), recovery(time.Minute), priority(1)} {
		b, err := proto.Marshal(&rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{plain(e), plain()}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld(t, nil)
		u := newUnary(t, &rmqv2.SendMessageRequest{})
		u.request = b
		w.SendMessage(u)
		select {
		case <-u.done:
		default:
			t.Fatal("the call is not completed")
		}
		if err := proto.Unmarshal(u.reply, &rmqv2.SendMessageResponse{}); err != nil {
			t.Fatal(err)
		}
	})
}
