package blackbox

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// reserved are the names that user properties may not have.
const reserved = `TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
	ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK
	POP_CK_OFFSET 1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL
	ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_MS TIMER_DELAY_SEC TIMER_DELIVER_MS
	TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP
	DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID __CRC32# _SYS_MSG_PRIORITY_ __LITE_TOPIC`

// sendCase is one message that differs from a good one.
type sendCase struct {
	name   string
	change func(m *rmqv2.Message)
	want   string
}

// properties adds n properties with so many bytes together.
func properties(n, size int) func(*rmqv2.Message) {
	return func(m *rmqv2.Message) {
		m.UserProperties = map[string]string{}
		for i := range n {
			key := fmt.Sprintf("k%03d", i)
			length := size/n - len(key)
			if i == 0 {
				length += size % n
			}
			m.UserProperties[key] = strings.Repeat("v", length)
		}
	}
}

func property(key, value string) func(*rmqv2.Message) {
	return func(m *rmqv2.Message) { m.UserProperties = map[string]string{key: value} }
}

// system changes the system properties.
func system(change func(*rmqv2.SystemProperties)) func(*rmqv2.Message) {
	return func(m *rmqv2.Message) { change(m.GetSystemProperties()) }
}

func tag(s string) func(*rmqv2.Message) {
	return system(func(p *rmqv2.SystemProperties) { p.Tag = &s })
}

func keys(s ...string) func(*rmqv2.Message) {
	return system(func(p *rmqv2.SystemProperties) { p.Keys = s })
}

func messageGroup(s string) func(*rmqv2.Message) {
	return system(func(p *rmqv2.SystemProperties) { p.MessageGroup = &s })
}

func body(n int) func(*rmqv2.Message) {
	return func(m *rmqv2.Message) { m.Body = []byte(strings.Repeat("b", n)) }
}

func sendCases() []sendCase {
	const (
		badProperty = "ILLEGAL_MESSAGE_PROPERTY_KEY"
		tooLarge    = "MESSAGE_PROPERTIES_TOO_LARGE"
	)
	cases := []sendCase{
		{"as it should be", func(*rmqv2.Message) {}, "OK"},
		{"no system properties", func(m *rmqv2.Message) { m.SystemProperties = nil }, "ILLEGAL_MESSAGE_ID"},
		{"empty body", body(0), "MESSAGE_BODY_EMPTY"},
		{"body of a byte", body(1), "OK"},
		{"body of 4 MiB", body(4 << 20), "OK"},
		{"body of 4 MiB and 1", body(4<<20 + 1), "MESSAGE_BODY_TOO_LARGE"},
		{"body of 20 MiB", body(20 << 20), "MESSAGE_BODY_TOO_LARGE"},
		{"128 properties", properties(128, 4096), "OK"},
		{"129 properties", properties(129, 4096), tooLarge},
		{"20,000 properties", properties(20000, 400000), tooLarge},
		{"16 KiB of properties", properties(4, 16<<10), "OK"},
		{"16 KiB and 1 of properties", properties(4, 16<<10+1), tooLarge},
		{"a property of 1 MiB", property("k", strings.Repeat("v", 1<<20)), tooLarge},
		{"a property key of 1 MiB", property(strings.Repeat("k", 1<<20), "v"), tooLarge},
		{"properties and tag of 16 KiB", func(m *rmqv2.Message) { properties(2, 16<<10-10)(m); tag("0123456789")(m) }, "OK"},
		{"properties and tag of 16 KiB and 1", func(m *rmqv2.Message) { properties(2, 16<<10-9)(m); tag("0123456789")(m) }, tooLarge},
		{"a tag of 16 KiB and 1", tag(strings.Repeat("t", 16<<10+1)), tooLarge},
		{"keys of 20 KiB", keys(strings.Repeat("k", 10<<10), strings.Repeat("l", 10<<10)), tooLarge},
		{"a born host of 64 KiB", system(func(p *rmqv2.SystemProperties) { p.BornHost = strings.Repeat("h", 64<<10) }), tooLarge},
		{"a trace of 64 KiB", system(func(p *rmqv2.SystemProperties) { p.TraceContext = new(strings.Repeat("t", 64<<10)) }), tooLarge},
		{"a message id of 64 KiB", system(func(p *rmqv2.SystemProperties) { p.MessageId = strings.Repeat("i", 64<<10) }), tooLarge},
		{"empty property key", property("", "v"), "OK"},
		{"empty property value", property("k", ""), "OK"},
		{"a reserved name in lower case", property("keys", "v"), "OK"},
		{"a name like a reserved one", property("KEYS2", "v"), "OK"},
		{"a property outside ASCII", property("größe", "🚀"), "OK"},
		{"an internal name", property("__SHARDINGKEY", "v"), "OK|" + badProperty},
		{"no tag", tag(""), "OK"},
		{"the tag *", tag("*"), "OK"},
		{"blank tag", tag("  "), "ILLEGAL_MESSAGE_TAG"},
		{"tag with a bar", tag("a|b"), "ILLEGAL_MESSAGE_TAG"},
		{"tag that is a bar", tag("|"), "ILLEGAL_MESSAGE_TAG"},
		{"tag outside ASCII", tag("größe"), "OK"},
		{"no key", keys(), "OK"},
		{"empty key", keys(""), "OK"},
		{"blank key", keys("  "), "ILLEGAL_MESSAGE_KEY"},
		{"second key blank", keys("a", " "), "ILLEGAL_MESSAGE_KEY"},
		{"key with a space", keys("a b"), "OK"},
		{"100 keys", keys(strings.Fields(strings.Repeat("k ", 100))...), "OK"},
		{"no message id", system(func(p *rmqv2.SystemProperties) { p.MessageId = "" }), "ILLEGAL_MESSAGE_ID"},
		{"blank message id", system(func(p *rmqv2.SystemProperties) { p.MessageId = " \t " }), "ILLEGAL_MESSAGE_ID"},
		{"message id of 300 letters", system(func(p *rmqv2.SystemProperties) { p.MessageId = strings.Repeat("i", 300) }), "OK"},
		{"message id with a control character", system(func(p *rmqv2.SystemProperties) { p.MessageId = "a\x01b" }), "OK"},
		{"message type 0", system(func(p *rmqv2.SystemProperties) { p.MessageType = 0 }), "OK"},
		{"message type 99", system(func(p *rmqv2.SystemProperties) { p.MessageType = 99 }), "OK"},
		{"message type -1", system(func(p *rmqv2.SystemProperties) { p.MessageType = -1 }), "OK"},
		{"encoding 0", system(func(p *rmqv2.SystemProperties) { p.BodyEncoding = 0 }), "OK"},
		{"encoding 9", system(func(p *rmqv2.SystemProperties) { p.BodyEncoding = 9 }), "OK"},
		{"encoding -9", system(func(p *rmqv2.SystemProperties) { p.BodyEncoding = -9 }), "OK"},
		{"an unknown digest", system(func(p *rmqv2.SystemProperties) { p.BodyDigest = &rmqv2.Digest{Type: 99, Checksum: "zz"} }), "OK"},
		{"a wrong digest", system(func(p *rmqv2.SystemProperties) {
			p.BodyDigest = &rmqv2.Digest{Type: rmqv2.DigestType_MD5, Checksum: "00"}
		}), "OK"},
		{"a negative queue", system(func(p *rmqv2.SystemProperties) { p.QueueId = -7 }), "OK"},
		{"a queue that is not there", system(func(p *rmqv2.SystemProperties) { p.QueueId = 1 << 30 }), "OK"},
		{"fields of the server", system(func(p *rmqv2.SystemProperties) {
			p.ReceiptHandle, p.QueueOffset, p.DeliveryAttempt = new("h"), new(int64(-5)), new(int32(-3))
			p.StoreHost, p.StoreTimestamp = "nowhere", timestamppb.New(time.Unix(1<<40, 0))
		}), "OK"},
		{"born before 1970", system(func(p *rmqv2.SystemProperties) { p.BornTimestamp = &timestamppb.Timestamp{Seconds: -1000} }), "OK"},
		{"born at no time", system(func(p *rmqv2.SystemProperties) { p.BornTimestamp = &timestamppb.Timestamp{Seconds: 1 << 62} }), "BAD_REQUEST|OK"},
		{"a message group for a plain topic", messageGroup("g"), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
		{"a priority for a plain topic", system(func(p *rmqv2.SystemProperties) { p.Priority = new(int32(1)) }), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
		{"a negative priority", system(func(p *rmqv2.SystemProperties) { p.Priority = new(int32(-1)) }), "BAD_REQUEST|MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
		{"a lite topic for a plain topic", system(func(p *rmqv2.SystemProperties) { p.LiteTopic = new("l") }), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
		{
			"a transaction for a plain topic", system(func(p *rmqv2.SystemProperties) { p.MessageType = rmqv2.MessageType_TRANSACTION }),
			"MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
		},
		{"a recovery duration of 1 h and 1 s", system(func(p *rmqv2.SystemProperties) {
			p.MessageType, p.OrphanedTransactionRecoveryDuration = rmqv2.MessageType_TRANSACTION, durationpb.New(time.Hour+time.Second)
		}), "BAD_REQUEST"},
		{"a delivery time for a plain topic", deliverIn(time.Hour), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
		{"a delivery in 41 days", deliverIn(41 * 24 * time.Hour), "ILLEGAL_DELIVERY_TIME"},
		{"a delivery in 10,000 years", system(func(p *rmqv2.SystemProperties) {
			p.DeliveryTimestamp = &timestamppb.Timestamp{Seconds: 1 << 55}
		}), "ILLEGAL_DELIVERY_TIME"},
		{"a delivery at no time", system(func(p *rmqv2.SystemProperties) {
			p.DeliveryTimestamp = &timestamppb.Timestamp{Seconds: time.Now().Unix() + 10, Nanos: -5}
		}), "ILLEGAL_DELIVERY_TIME|BAD_REQUEST|MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
	}
	for name := range strings.FieldsSeq(reserved) {
		cases = append(cases, sendCase{"reserved " + name, property(name, "v"), badProperty})
	}
	for what, text := range map[string]string{
		"U+0000": "a\x00b", "U+0001": "a\x01b", "tab": "a\tb", "newline": "a\nb", "U+001F": "a\x1fb", "U+007F": "a\x7fb", "U+0080": "a\u0080b", "U+009F": "a\u009fb",
	} {
		cases = append(
			cases, sendCase{"property key with " + what, property(text, "v"), badProperty}, sendCase{"property value with " + what, property("k", text), badProperty},
			sendCase{"tag with " + what, tag(text), "ILLEGAL_MESSAGE_TAG"}, sendCase{"key with " + what, keys(text), "ILLEGAL_MESSAGE_KEY"},
		)
	}
	for what, text := range map[string]string{"U+0020": "a b", "U+007E": "a~b", "U+00A0": "a\u00a0b", "U+FFFD": "a\ufffdb"} {
		cases = append(cases, sendCase{"tag with " + what, tag(text), "OK"}, sendCase{"key with " + what, keys(text), "OK"},
			sendCase{"property with " + what, property(text, text), "OK"})
	}
	return cases
}

func deliverIn(d time.Duration) func(*rmqv2.Message) {
	return system(func(p *rmqv2.SystemProperties) { p.DeliveryTimestamp = timestamppb.New(time.Now().Add(d)) })
}

// TestSend sends messages each of which has one thing wrong or at a limit. Exactly the good ones are
// stored.
func TestSend(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	for _, x := range sendCases() {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			m := p.message("a body")
			x.change(m)
			p.send(t.Context(), c, m).is(t, x.want)
		})
	}
}

// TestSendMessageGroup is about topics that take message groups.
func TestSendMessageGroup(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_FIFO, 4)
	for _, x := range []sendCase{
		{"63 bytes", messageGroup(strings.Repeat("g", 63)), "OK"},
		{"64 bytes", messageGroup(strings.Repeat("g", 64)), "ILLEGAL_MESSAGE_GROUP"},
		{"63 bytes outside ASCII", messageGroup(strings.Repeat("é", 31) + "e"), "OK"},
		{"64 bytes in 32 letters", messageGroup(strings.Repeat("é", 32)), "ILLEGAL_MESSAGE_GROUP"},
		{"1 MiB", messageGroup(strings.Repeat("g", 1<<20)), "ILLEGAL_MESSAGE_GROUP|MESSAGE_PROPERTIES_TOO_LARGE"},
		{"blank", messageGroup("  "), "ILLEGAL_MESSAGE_GROUP"},
		{"control", messageGroup("a\x01b"), "ILLEGAL_MESSAGE_GROUP"},
		{"U+0085", messageGroup("a\u0085b"), "ILLEGAL_MESSAGE_GROUP"},
		{"none", messageGroup(""), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
		{"with a delivery time", func(m *rmqv2.Message) { messageGroup("g")(m); deliverIn(time.Hour)(m) }, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
		{"type says NORMAL", messageGroup("g"), "OK"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			m := p.message("a body")
			x.change(m)
			p.send(t.Context(), c, m).is(t, x.want)
		})
	}
}

// TestSendBatch is about requests with several messages: one bad message refuses all.
func TestSendBatch(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p, other := newPlace(t, c), newPlace(t, c)
	batch := func(n int, change func([]*rmqv2.Message)) []*rmqv2.Message {
		var list []*rmqv2.Message
		for i := range n {
			list = append(list, p.message(fmt.Sprintf("message %d", i)))
		}
		change(list)
		return list
	}
	second := func(change func(*rmqv2.Message)) func([]*rmqv2.Message) {
		return func(list []*rmqv2.Message) { change(list[1]) }
	}
	for _, x := range []struct {
		name   string
		n      int
		change func([]*rmqv2.Message)
		want   string
	}{
		{"none", 0, func([]*rmqv2.Message) {}, "MESSAGE_CORRUPTED"},
		{"two", 2, func([]*rmqv2.Message) {}, "OK"},
		{"1000", 1000, func([]*rmqv2.Message) {}, "OK"},
		{"another topic", 2, second(func(m *rmqv2.Message) { m.Topic.Name = other.topic }), "MESSAGE_CORRUPTED"},
		{"an illegal second topic", 2, second(func(m *rmqv2.Message) { m.Topic.Name = "a b" }), "MESSAGE_CORRUPTED|ILLEGAL_TOPIC"},
		{"no second topic", 2, second(func(m *rmqv2.Message) { m.Topic = nil }), "MESSAGE_CORRUPTED|ILLEGAL_TOPIC"},
		{"another namespace", 2, second(func(m *rmqv2.Message) { m.Topic.ResourceNamespace = "ns" }), "MESSAGE_CORRUPTED"},
		{"second body empty", 2, second(body(0)), "MESSAGE_BODY_EMPTY"},
		{"second body too long", 2, second(body(4<<20 + 1)), "MESSAGE_BODY_TOO_LARGE"},
		{"second without id", 2, second(system(func(p *rmqv2.SystemProperties) { p.MessageId = "" })), "ILLEGAL_MESSAGE_ID"},
		{"second tag illegal", 2, second(tag("a|b")), "ILLEGAL_MESSAGE_TAG"},
		{"second of another type", 2, second(messageGroup("g")), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE|MULTIPLE_RESULTS"},
		{"second delayed", 2, second(deliverIn(time.Hour)), "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE|MULTIPLE_RESULTS"},
		{"the last of 1000 empty", 1000, func(list []*rmqv2.Message) { list[999].Body = nil }, "MESSAGE_BODY_EMPTY"},
		{"4 MiB together", 4, func(list []*rmqv2.Message) { list[0].Body = nil; each(list, body(1<<20)) }, "OK"},
		{"over 4 MiB together", 5, func(list []*rmqv2.Message) { each(list, body(1<<20)) }, "PAYLOAD_TOO_LARGE|MESSAGE_BODY_TOO_LARGE"},
		{"33 times 4 MiB", 33, func(list []*rmqv2.Message) { each(list, body(4<<20)) }, "ResourceExhausted"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			list := batch(x.n, x.change)
			a := p.send(t.Context(), c, list...)
			a.is(t, x.want)
			if a.name() == "OK" && len(a.entries) != len(list) {
				t.Errorf("%d entries for %d messages", len(a.entries), len(list))
			}
		})
	}
}

func each(list []*rmqv2.Message, change func(*rmqv2.Message)) {
	for _, m := range list {
		change(m)
	}
}

// TestPropertiesComeBack sends what is legal but unusual, and gets it as it was.
func TestPropertiesComeBack(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	m := p.message("x")
	m.UserProperties = map[string]string{"": "empty key", "empty": "", "größe": "🚀", "  ": "blank", "keys": "lower", "a=b": "c&d"}
	keys("a b", "c")(m)
	tag("größe")(m)
	p.send(t.Context(), c, m).is(t, "OK")
	got := p.take(1)
	if !maps.Equal(got[0].GetUserProperties(), m.GetUserProperties()) {
		t.Errorf("properties %v, want %v", got[0].GetUserProperties(), m.GetUserProperties())
	}
	if got[0].GetSystemProperties().GetTag() != "größe" {
		t.Errorf("tag %q", got[0].GetSystemProperties().GetTag())
	}
	p.finish(got)
}
