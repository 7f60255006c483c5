package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/testseed"
)

// decoder is one of ours with protobuf's message beside it.
type decoder struct {
	name   string
	fresh  func() proto.Message
	decode func(b []byte) (any, error)
	equal  func(ours any, theirs proto.Message) error
}

// decoders lists every request that is read by hand.
func decoders() []decoder {
	return []decoder{
		{"SendMessage", func() proto.Message { return &rmqv2.SendMessageRequest{} }, func(b []byte) (any, error) {
			q := &SendRequest{}
			return q, q.Decode(b)
		}, equalSend},
		{"QueryRoute", func() proto.Message { return &rmqv2.QueryRouteRequest{} }, func(b []byte) (any, error) {
			q := &QueryRouteRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*QueryRouteRequest), t.(*rmqv2.QueryRouteRequest)
			return all(equalResource(&q.Topic, m.GetTopic()), equalEndpoints(&q.Endpoints, m.GetEndpoints()))
		}},
		{"QueryAssignment", func() proto.Message { return &rmqv2.QueryAssignmentRequest{} }, func(b []byte) (any, error) {
			q := &QueryAssignmentRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*QueryAssignmentRequest), t.(*rmqv2.QueryAssignmentRequest)
			return all(equalResource(&q.Topic, m.GetTopic()), equalResource(&q.Group, m.GetGroup()), equalEndpoints(&q.Endpoints, m.GetEndpoints()))
		}},
		{"ReceiveMessage", func() proto.Message { return &rmqv2.ReceiveMessageRequest{} }, func(b []byte) (any, error) {
			q := &ReceiveMessageRequest{}
			return q, q.Decode(b)
		}, equalReceive},
		{"PullMessage", func() proto.Message { return &rmqv2.PullMessageRequest{} }, func(b []byte) (any, error) {
			q := &PullMessageRequest{}
			return q, q.Decode(b)
		}, equalPull},
		{"UpdateOffset", func() proto.Message { return &rmqv2.UpdateOffsetRequest{} }, func(b []byte) (any, error) {
			q := &UpdateOffsetRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*UpdateOffsetRequest), t.(*rmqv2.UpdateOffsetRequest)
			return all(equalResource(&q.Group, m.GetGroup()), equalQueue(&q.Queue, m.GetMessageQueue()), same("offset", q.Offset, m.GetOffset()))
		}},
		{"GetOffset", func() proto.Message { return &rmqv2.GetOffsetRequest{} }, func(b []byte) (any, error) {
			q := &GetOffsetRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*GetOffsetRequest), t.(*rmqv2.GetOffsetRequest)
			return all(equalResource(&q.Group, m.GetGroup()), equalQueue(&q.Queue, m.GetMessageQueue()))
		}},
		{"QueryOffset", func() proto.Message { return &rmqv2.QueryOffsetRequest{} }, func(b []byte) (any, error) {
			q := &QueryOffsetRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*QueryOffsetRequest), t.(*rmqv2.QueryOffsetRequest)
			return all(equalQueue(&q.Queue, m.GetMessageQueue()), same("policy", q.Policy, int32(m.GetQueryOffsetPolicy())),
				equalTime("time", q.Time, m.Timestamp != nil, m.GetTimestamp()))
		}},
		{"EndTransaction", func() proto.Message { return &rmqv2.EndTransactionRequest{} }, func(b []byte) (any, error) {
			q := &EndTransactionRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*EndTransactionRequest), t.(*rmqv2.EndTransactionRequest)
			return all(equalResource(&q.Topic, m.GetTopic()), same("message id", string(q.MessageID), m.GetMessageId()),
				same("transaction id", string(q.TransactionID), m.GetTransactionId()), same("resolution", q.Resolution, int32(m.GetResolution())),
				same("source", q.Source, int32(m.GetSource())))
		}},
		{"AckMessage", func() proto.Message { return &rmqv2.AckMessageRequest{} }, func(b []byte) (any, error) {
			q := &AckMessageRequest{}
			return q, q.Decode(b)
		}, equalAck},
		{"ChangeInvisibleDuration", func() proto.Message { return &rmqv2.ChangeInvisibleDurationRequest{} }, func(b []byte) (any, error) {
			q := &ChangeInvisibleDurationRequest{}
			return q, q.Decode(b)
		}, equalChange},
		{"ForwardMessageToDeadLetterQueue", func() proto.Message { return &rmqv2.ForwardMessageToDeadLetterQueueRequest{} }, func(b []byte) (any, error) {
			q := &ForwardRequest{}
			return q, q.Decode(b)
		}, equalForward},
		{"RecallMessage", func() proto.Message { return &rmqv2.RecallMessageRequest{} }, func(b []byte) (any, error) {
			q := &RecallRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*RecallRequest), t.(*rmqv2.RecallMessageRequest)
			return all(equalResource(&q.Topic, m.GetTopic()), same("handle", string(q.Handle), m.GetRecallHandle()))
		}},
		{"Heartbeat", func() proto.Message { return &rmqv2.HeartbeatRequest{} }, func(b []byte) (any, error) {
			q := &HeartbeatRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			q, m := o.(*HeartbeatRequest), t.(*rmqv2.HeartbeatRequest)
			return all(equalResource(&q.Group, m.GetGroup()), same("client type", q.ClientType, int32(m.GetClientType())))
		}},
		{"NotifyClientTermination", func() proto.Message { return &rmqv2.NotifyClientTerminationRequest{} }, func(b []byte) (any, error) {
			q := &NotifyClientTerminationRequest{}
			return q, q.Decode(b)
		}, func(o any, t proto.Message) error {
			return equalResource(&o.(*NotifyClientTerminationRequest).Group, t.(*rmqv2.NotifyClientTerminationRequest).GetGroup())
		}},
	}
}

// compare gives the same bytes to both. Both must take or refuse them, and read the same.
func (d decoder) compare(b []byte) error {
	theirs := d.fresh()
	want := proto.Unmarshal(b, theirs)
	ours, err := d.decode(b)
	if (err == nil) != (want == nil) {
		return fmt.Errorf("%s of %x: ours says %w, protobuf says %w", d.name, b, err, want)
	}
	if err != nil {
		return nil
	}
	if err := d.equal(ours, theirs); err != nil {
		return fmt.Errorf("%s of %x: %w", d.name, b, err)
	}
	return nil
}

func all(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func same[T comparable](what string, ours, theirs T) error {
	if ours != theirs {
		return fmt.Errorf("%s: ours %v, protobuf %v", what, ours, theirs)
	}
	return nil
}

func equalResource(ours *Resource, theirs *rmqv2.Resource) error {
	var echo rmqv2.Resource
	if err := proto.Unmarshal(ours.Append(nil), &echo); err != nil {
		return err
	}
	if ours.Present() && !proto.Equal(&echo, theirs) {
		return fmt.Errorf("resource passed on: ours %v, protobuf %v", &echo, theirs)
	}
	return all(
		same("resource present", ours.Present(), theirs != nil),
		same("name", string(ours.Name), theirs.GetName()),
		same("namespace", string(ours.Namespace), theirs.GetResourceNamespace()),
		same("length", ours.Len(), len(ours.Append(nil))),
		same("bytes", string(ours.Bytes()), string(ours.Append(nil))))
}

func equalEndpoints(ours *Endpoints, theirs *rmqv2.Endpoints) error {
	var echo rmqv2.Endpoints
	if err := proto.Unmarshal(ours.Append(nil), &echo); err != nil {
		return err
	}
	if ours.Present() && !proto.Equal(&echo, theirs) {
		return fmt.Errorf("endpoints passed on: ours %v, protobuf %v", &echo, theirs)
	}
	bad := false
	for _, a := range theirs.GetAddresses() {
		bad = bad || a.GetHost() == "" || a.GetPort() < 1 || a.GetPort() > 65535
	}
	return all(
		same("scheme", ours.Scheme, int32(theirs.GetScheme())),
		same("addresses", ours.Addresses, len(theirs.GetAddresses())),
		same("bad address", ours.Bad, bad))
}

// stamp is a Timestamp or Duration of protobuf.
type stamp interface {
	GetSeconds() int64
	GetNanos() int32
}

func equalTime(what string, ours Time, set bool, theirs stamp) error {
	return all(
		same(what+" set", ours.Set, set),
		same(what+" seconds", ours.Seconds, theirs.GetSeconds()),
		same(what+" nanos", ours.Nanos, theirs.GetNanos()))
}

func equalReceive(o any, t proto.Message) error {
	q, m := o.(*ReceiveMessageRequest), t.(*rmqv2.ReceiveMessageRequest)
	return all(
		equalResource(&q.Group, m.GetGroup()),
		equalResource(&q.Queue.Topic, m.GetMessageQueue().GetTopic()),
		same("queue", q.Queue.ID, m.GetMessageQueue().GetId()),
		same("broker", string(q.Queue.Broker), m.GetMessageQueue().GetBroker().GetName()),
		same("filter set", q.Filter.Set, m.FilterExpression != nil),
		same("filter", string(q.Filter.Expression), m.GetFilterExpression().GetExpression()),
		same("filter type", q.Filter.Type, int32(m.GetFilterExpression().GetType())),
		same("batch", q.BatchSize, m.GetBatchSize()),
		equalTime("invisible", q.InvisibleDuration, m.InvisibleDuration != nil, m.GetInvisibleDuration()),
		same("renew", q.AutoRenew, m.GetAutoRenew()),
		equalTime("poll", q.LongPollingTimeout, m.LongPollingTimeout != nil, m.GetLongPollingTimeout()),
		same("attempt id", string(q.AttemptID), m.GetAttemptId()),
		same("attempt id set", q.HasAttemptID, m.AttemptId != nil))
}

func equalQueue(ours *MessageQueue, theirs *rmqv2.MessageQueue) error {
	return all(
		equalResource(&ours.Topic, theirs.GetTopic()),
		same("queue", ours.ID, theirs.GetId()),
		same("broker", string(ours.Broker), theirs.GetBroker().GetName()))
}

func equalPull(o any, t proto.Message) error {
	q, m := o.(*PullMessageRequest), t.(*rmqv2.PullMessageRequest)
	return all(
		equalResource(&q.Group, m.GetGroup()), equalQueue(&q.Queue, m.GetMessageQueue()),
		same("offset", q.Offset, m.GetOffset()), same("batch", q.BatchSize, m.GetBatchSize()),
		same("filter", string(q.Filter.Expression), m.GetFilterExpression().GetExpression()),
		same("filter type", q.Filter.Type, int32(m.GetFilterExpression().GetType())),
		equalTime("poll", q.LongPollingTimeout, m.LongPollingTimeout != nil, m.GetLongPollingTimeout()))
}

func equalAck(o any, t proto.Message) error {
	q, m := o.(*AckMessageRequest), t.(*rmqv2.AckMessageRequest)
	if err := all(equalResource(&q.Group, m.GetGroup()), equalResource(&q.Topic, m.GetTopic()),
		same("entries", len(q.Entries), len(m.GetEntries()))); err != nil {
		return err
	}
	for i, e := range m.GetEntries() {
		if err := all(
			same("message id", string(q.Entries[i].MessageID), e.GetMessageId()),
			same("handle", string(q.Entries[i].Handle), e.GetReceiptHandle()),
			same("lite topic", string(q.Entries[i].LiteTopic), e.GetLiteTopic()),
			same("lite topic set", q.Entries[i].HasLiteTopic, e.LiteTopic != nil)); err != nil {
			return err
		}
	}
	return nil
}

func equalChange(o any, t proto.Message) error {
	q, m := o.(*ChangeInvisibleDurationRequest), t.(*rmqv2.ChangeInvisibleDurationRequest)
	return all(
		equalResource(&q.Group, m.GetGroup()), equalResource(&q.Topic, m.GetTopic()),
		same("handle", string(q.Handle), m.GetReceiptHandle()),
		equalTime("invisible", q.InvisibleDuration, m.InvisibleDuration != nil, m.GetInvisibleDuration()),
		same("message id", string(q.MessageID), m.GetMessageId()),
		same("lite topic", string(q.LiteTopic), m.GetLiteTopic()),
		same("lite topic set", q.HasLiteTopic, m.LiteTopic != nil),
		same("suspend", q.Suspend, m.GetSuspend()))
}

func equalForward(o any, t proto.Message) error {
	q, m := o.(*ForwardRequest), t.(*rmqv2.ForwardMessageToDeadLetterQueueRequest)
	return all(
		equalResource(&q.Group, m.GetGroup()), equalResource(&q.Topic, m.GetTopic()),
		same("handle", string(q.Handle), m.GetReceiptHandle()),
		same("message id", string(q.MessageID), m.GetMessageId()),
		same("attempt", q.Attempt, m.GetDeliveryAttempt()),
		same("max attempts", q.MaxAttempts, m.GetMaxDeliveryAttempts()),
		same("lite topic", string(q.LiteTopic), m.GetLiteTopic()),
		same("lite topic set", q.HasLiteTopic, m.LiteTopic != nil))
}

func equalSend(o any, t proto.Message) error {
	q, m := o.(*SendRequest), t.(*rmqv2.SendMessageRequest)
	if err := same("messages", len(q.Messages), len(m.GetMessages())); err != nil {
		return err
	}
	for i := range q.Messages {
		if err := equalMessage(&q.Messages[i], m.GetMessages()[i]); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return nil
}

func equalMessage(q *SendMessage, m *rmqv2.Message) error {
	p := m.GetSystemProperties()
	if err := all(
		equalResource(&q.Topic, m.GetTopic()),
		same("body", string(q.Body), string(m.GetBody())),
		same("tag", string(q.Tag), p.GetTag()),
		same("tag set", q.HasTag, p != nil && p.Tag != nil),
		same("id", string(q.MessageID), p.GetMessageId()),
		same("encoding", q.BodyEncoding, int32(p.GetBodyEncoding())),
		same("type", q.MessageType, int32(p.GetMessageType())),
		equalTime("born", q.Born, p.GetBornTimestamp() != nil, p.GetBornTimestamp()),
		same("born host", string(q.BornHost), p.GetBornHost()),
		equalTime("deliver at", q.DeliverAt, p.GetDeliveryTimestamp() != nil, p.GetDeliveryTimestamp()),
		same("group", string(q.Group), p.GetMessageGroup()),
		equalTime("recovery", q.Recovery, p.GetOrphanedTransactionRecoveryDuration() != nil, p.GetOrphanedTransactionRecoveryDuration()),
		same("lite topic", string(q.LiteTopic), p.GetLiteTopic()),
		same("priority", q.Priority, p.GetPriority()),
		same("priority set", q.HasPriority, p != nil && p.Priority != nil),
	); err != nil {
		return err
	}
	return all(equalProperties(q, m), equalStored(q, m))
}

// equalProperties compares the user properties and keys as the iterators give them.
func equalProperties(q *SendMessage, m *rmqv2.Message) error {
	user, n, size := map[string]string{}, 0, 0
	for it := UserProperties(q.User); ; n++ {
		k, v, ok := it.Next()
		if !ok {
			break
		}
		user[string(k)] = string(v)
		size += len(k) + len(v)
	}
	if err := all(same("properties", n, q.Properties), same("distinct properties", len(user), len(m.GetUserProperties()))); err != nil {
		return err
	}
	for k, v := range m.GetUserProperties() {
		if err := same("property "+k, user[k], v); err != nil {
			return err
		}
	}
	want := m.GetSystemProperties().GetKeys()
	it := q.Keys()
	for i := 0; ; i++ {
		k, ok := it.Next()
		if !ok {
			if err := same("keys", i, len(want)); err != nil {
				return err
			}
			break
		}
		if i >= len(want) || want[i] != string(k) {
			return fmt.Errorf("key %d: ours %q, protobuf has %q", i, k, want)
		}
		size += len(k)
	}
	return same("size of properties", q.PropertyBytes(), size+len(q.Tag))
}

// equalStored compares the system properties for storing with what protobuf makes of the same rules.
func equalStored(q *SendMessage, m *rmqv2.Message) error {
	p, ok := proto.Clone(m.GetSystemProperties()).(*rmqv2.SystemProperties)
	if !ok || p == nil {
		p = &rmqv2.SystemProperties{}
	}
	want := &rmqv2.SystemProperties{
		Tag: p.Tag, Keys: p.Keys, MessageId: p.MessageId, BornTimestamp: p.BornTimestamp, BornHost: p.BornHost,
		DeliveryTimestamp: p.DeliveryTimestamp, MessageGroup: p.MessageGroup, TraceContext: p.TraceContext,
		LiteTopic: p.LiteTopic, Priority: p.Priority,
		BodyEncoding: rmqv2.Encoding_GZIP, MessageType: rmqv2.MessageType_DELAY,
	}
	if want.BornHost == "" {
		want.BornHost = "peer:1"
	}
	if want.BornTimestamp == nil {
		want.BornTimestamp = stampOf(1_234_567)
	}
	stored := q.AppendSystem(nil, System{Type: 3, Encoding: 2, BornMS: 1_234_567, BornHost: "peer:1"})
	got := &rmqv2.SystemProperties{}
	if err := proto.Unmarshal(stored, got); err != nil {
		return fmt.Errorf("stored properties: %w", err)
	}
	if !proto.Equal(got, want) {
		return fmt.Errorf("stored properties: ours %v, by protobuf %v", got, want)
	}
	return nil
}

func FuzzDecode(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i, d := range decoders() {
		for range 20 {
			b, err := proto.Marshal(randomMessage(rng, d.fresh()))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), b)
		}
	}
	ds := decoders()
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		if err := ds[int(which)%len(ds)].compare(b); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDecodersAgreeWithProtobuf(t *testing.T) {
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, d := range decoders() {
		t.Run(d.name, func(t *testing.T) {
			for range 500 {
				good, err := proto.MarshalOptions{Deterministic: true}.Marshal(randomMessage(rng, d.fresh()))
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range [][]byte{good, damaged(rng, good), merged(rng, good, d.fresh)} {
					if err := d.compare(b); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// damaged changes, cuts or adds a few bytes.
func damaged(rng *rand.Rand, good []byte) []byte {
	b := bytes.Clone(good)
	for range 1 + rng.IntN(3) {
		switch {
		case len(b) == 0 || rng.IntN(4) == 0:
			b = append(b, byte(rng.Uint32()))
		case rng.IntN(3) == 0:
			b = b[:rng.IntN(len(b))]
		default:
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
	}
	return b
}

// merged writes two messages one after the other, with unknown fields between: protobuf merges them.
func merged(rng *rand.Rand, good []byte, fresh func() proto.Message) []byte {
	b := protowire.AppendTag(bytes.Clone(good), 500, protowire.StartGroupType)
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), 7)
	b = protowire.AppendTag(b, 500, protowire.EndGroupType)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 1000, protowire.Fixed64Type), 1)
	more, err := proto.Marshal(randomMessage(rng, fresh()))
	if err != nil {
		panic(err)
	}
	return append(b, more...)
}
