package blackbox

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/testseed"
)

const handleAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// damaged returns handles that are almost good.
func damaged(good string, rng *rand.Rand) []string {
	list := []string{
		"", " ", "handle", strings.Repeat("A", len(good)), good + "=", good + "A", " " + good, good + " ", good + "\n", good[1:], good + good,
		strings.ToLower(good), strings.ToUpper(good), strings.Repeat("x", 1<<20), "\x00" + good[1:],
	}
	for n := range good {
		list = append(list, good[:n])
	}
	for at := range good { // every bit of every character
		v := strings.IndexByte(handleAlphabet, good[at])
		for bit := range 6 {
			list = append(list, good[:at]+string(handleAlphabet[v^1<<bit])+good[at+1:])
		}
	}
	for range 200 {
		forged := make([]byte, len(good))
		for i := range forged {
			forged[i] = handleAlphabet[rng.IntN(len(handleAlphabet))]
		}
		list = append(list, string(forged))
	}
	var other []string
	for _, h := range list {
		if h != good { // upper case may be what it was
			other = append(other, h)
		}
	}
	return other
}

// TestDamagedHandles: an ack or a change with anything but the very handle does nothing.
//
//fault:client receipt handles that were changed => nothing is done
func TestDamagedHandles(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(1)
	got := p.take(1)
	good := got[0].GetSystemProperties().GetReceiptHandle()
	bad := damaged(good, rand.New(rand.NewPCG(seed, 0)))

	req := &rmqv2.AckMessageRequest{Topic: resource(p.topic), Group: resource(p.group)}
	for i, h := range bad {
		req.Entries = append(req.Entries, &rmqv2.AckMessageEntry{MessageId: fmt.Sprint(i), ReceiptHandle: h})
	}
	a := c.do(t.Context(), "AckMessage", req)
	a.is(t, "INVALID_RECEIPT_HANDLE")
	results := a.replies[0].(*rmqv2.AckMessageResponse).GetEntries()
	if len(results) != len(bad) {
		t.Fatalf("%d results for %d handles", len(results), len(bad))
	}
	for i, r := range results {
		if r.GetStatus().GetCode() != rmqv2.Code_INVALID_RECEIPT_HANDLE || r.GetReceiptHandle() != bad[i] || r.GetMessageId() != fmt.Sprint(i) {
			t.Errorf("ack with %.100q: %v", bad[i], r.GetStatus())
		}
	}
	for _, h := range bad {
		a := c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(p.topic, p.group, h, 0))
		a.is(t, "INVALID_RECEIPT_HANDLE")
		if echo := a.replies[0].(*rmqv2.ChangeInvisibleDurationResponse).GetReceiptHandle(); echo != h {
			t.Errorf("change with %.100q is answered with %.100q", h, echo)
		}
	}
	if s := p.state(t.Context()); s.GetInFlight() != 1 || s.GetReady() != 0 {
		t.Errorf("in flight %d, ready %d: damaged handles did something", s.GetInFlight(), s.GetReady())
	}

	req.Entries = append(req.Entries[:3:3], ackRequest(p.topic, p.group, got...).GetEntries()...)
	a = c.do(t.Context(), "AckMessage", req)
	a.is(t, "MULTIPLE_RESULTS")
	if n := len(a.entries); n != 4 || a.entries[3].GetCode() != rmqv2.Code_OK || a.entries[0].GetCode() != rmqv2.Code_INVALID_RECEIPT_HANDLE {
		t.Errorf("a good handle among bad ones: %v", a.entries)
	}
	p.finish(got) // again: the same answer
}

// TestForeignHandles: a handle is of one topic, one group and one cluster.
func TestForeignHandles(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p, q := newPlace(t, c), newPlace(t, c)
	p.put(1)
	q.put(1)
	mine, theirs := p.take(1), q.take(1)
	h := mine[0].GetSystemProperties().GetReceiptHandle()

	abroad := connect(t, ownDev(t).grpc)
	var far *rmqv2.Message // with the same names and ids, in a cluster of its own
	makeTopic(t, abroad, p.topic, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 4)
	makeGroup(t, abroad, p.group)
	abroad.do(t.Context(), "SendMessage", request("SendMessage", p.topic, "")).is(t, "OK")
	a := abroad.do(t.Context(), "ReceiveMessage", receiveRequest(p.topic, p.group))
	if a.is(t, "OK"); len(a.messages) != 1 {
		t.Fatalf("%d messages abroad", len(a.messages))
	}
	far = a.messages[0]

	const no = "INVALID_RECEIPT_HANDLE"
	for _, x := range []struct {
		name, topic, group, handle, want string
	}{
		{"another group", p.topic, q.group, h, no},
		{"another topic", q.topic, p.group, h, no},
		{"another topic and group", q.topic, q.group, h, no},
		{"an absent group", p.topic, "absent", h, no + "|CONSUMER_GROUP_NOT_FOUND"},
		{"an absent topic", "absent", p.group, h, no + "|TOPIC_NOT_FOUND"},
		{"another cluster", p.topic, p.group, far.GetSystemProperties().GetReceiptHandle(), no},
	} {
		t.Run(x.name, func(t *testing.T) {
			m := &rmqv2.Message{SystemProperties: &rmqv2.SystemProperties{MessageId: "x", ReceiptHandle: &x.handle}}
			c.do(t.Context(), "AckMessage", ackRequest(x.topic, x.group, m)).is(t, x.want)
			c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(x.topic, x.group, x.handle, 0)).is(t, x.want)
		})
	}
	abroad.do(t.Context(), "AckMessage", ackRequest(p.topic, p.group, mine...)).is(t, no)
	abroad.do(t.Context(), "AckMessage", ackRequest(p.topic, p.group, far)).is(t, "OK")
	for _, s := range []*adminv1.GroupTopic{p.state(t.Context()), q.state(t.Context())} {
		if s.GetInFlight() != 1 || s.GetReady() != 0 {
			t.Errorf("topic %s: in flight %d, ready %d: a foreign handle did something", s.GetTopic(), s.GetInFlight(), s.GetReady())
		}
	}
	p.finish(mine)
	q.finish(theirs)
}

// TestStaleHandles: a handle is of one delivery.
func TestStaleHandles(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(1)
	first := p.take(1)
	h := first[0].GetSystemProperties().GetReceiptHandle()
	c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(p.topic, p.group, h, 0)).is(t, "OK")
	second := p.take(1)
	if n := second[0].GetSystemProperties().GetDeliveryAttempt(); n != 2 {
		t.Errorf("attempt %d after the message was given back, want 2", n)
	}
	c.do(t.Context(), "AckMessage", ackRequest(p.topic, p.group, first...)).is(t, "INVALID_RECEIPT_HANDLE")
	c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(p.topic, p.group, h, 0)).is(t, "INVALID_RECEIPT_HANDLE")
	if s := p.state(t.Context()); s.GetInFlight() != 1 || s.GetReady() != 0 {
		t.Errorf("in flight %d, ready %d: a stale handle did something", s.GetInFlight(), s.GetReady())
	}
	p.finish(second)
	p.finish(second) // a repeated ack is a retry
	h = second[0].GetSystemProperties().GetReceiptHandle()
	c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(p.topic, p.group, h, 0)).is(t, "INVALID_RECEIPT_HANDLE")
	if n := p.open(t.Context()); n != 0 {
		t.Errorf("%d messages are back after a change that came after the ack", n)
	}
}

// TestLateHandles: a handle is good until somebody else has the message.
func TestLateHandles(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(2)
	got := p.hold(c, 2, 10*time.Second)
	until(t, 15*time.Second, func(ctx context.Context) bool { return p.state(ctx).GetReady() == 2 })
	p.finish(got[:1])
	h := got[1].GetSystemProperties().GetReceiptHandle()
	c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(p.topic, p.group, h, time.Minute)).is(t, "OK")
	if s := p.state(t.Context()); s.GetInFlight() != 1 || s.GetReady() != 0 {
		t.Errorf("in flight %d, ready %d after a late ack and a late change", s.GetInFlight(), s.GetReady())
	}
	p.finish(got[1:])
}

// TestHandleOfDeletedTopic: a topic of the same name is another topic.
func TestHandleOfDeletedTopic(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	group := newPlace(t, c).group
	const topic = "deleted"
	makeTopic(t, c, topic, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
	c.do(t.Context(), "SendMessage", request("SendMessage", topic, "")).is(t, "OK")
	a := c.do(t.Context(), "ReceiveMessage", receiveRequest(topic, group))
	if a.is(t, "OK"); len(a.messages) != 1 {
		t.Fatalf("%d messages", len(a.messages))
	}
	h := a.messages[0].GetSystemProperties().GetReceiptHandle()
	refused := func(want string) {
		t.Helper()
		c.do(t.Context(), "AckMessage", ackRequest(topic, group, a.messages...)).is(t, want)
		c.do(t.Context(), "ChangeInvisibleDuration", changeRequest(topic, group, h, 0)).is(t, want)
	}
	if _, err := c.admin.DeleteTopic(t.Context(), &adminv1.DeleteTopicRequest{Name: topic}); err != nil {
		t.Fatal(err)
	}
	refused("INVALID_RECEIPT_HANDLE|TOPIC_NOT_FOUND")
	makeTopic(t, c, topic, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
	c.do(t.Context(), "SendMessage", request("SendMessage", topic, "")).is(t, "OK")
	refused("INVALID_RECEIPT_HANDLE")
	again := c.do(t.Context(), "ReceiveMessage", receiveRequest(topic, group))
	if again.is(t, "OK"); len(again.messages) != 1 || again.messages[0].GetSystemProperties().GetDeliveryAttempt() != 1 {
		t.Fatalf("%d messages of the new topic", len(again.messages))
	}
	c.do(t.Context(), "AckMessage", ackRequest(topic, group, again.messages...)).is(t, "OK")
	if _, err := c.admin.DeleteTopic(t.Context(), &adminv1.DeleteTopicRequest{Name: topic}); err != nil {
		t.Fatal(err)
	}
}

// TestChangeDuration is about the times that a change may ask for.
func TestChangeDuration(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(1)
	got := p.take(1)
	h := got[0].GetSystemProperties().GetReceiptHandle()
	for _, x := range []struct {
		name string
		d    *durationpb.Duration
		want string
	}{
		{"a nanosecond under 0", durationpb.New(-1), "ILLEGAL_INVISIBLE_TIME"},
		{"an hour under 0", durationpb.New(-time.Hour), "ILLEGAL_INVISIBLE_TIME"},
		{"12 h", durationpb.New(12 * time.Hour), "OK"},
		{"a nanosecond over 12 h", durationpb.New(12*time.Hour + 1), "ILLEGAL_INVISIBLE_TIME"},
		{"13 h", durationpb.New(13 * time.Hour), "ILLEGAL_INVISIBLE_TIME"},
		{"the longest", &durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}, "ILLEGAL_INVISIBLE_TIME"},
		{"the least", &durationpb.Duration{Seconds: math.MinInt64, Nanos: math.MinInt32}, "ILLEGAL_INVISIBLE_TIME"},
		{"30 s", durationpb.New(30 * time.Second), "OK"},
	} {
		t.Run(x.name, func(t *testing.T) {
			req := changeRequest(p.topic, p.group, h, 0)
			req.InvisibleDuration = x.d
			a := c.do(t.Context(), "ChangeInvisibleDuration", req)
			a.is(t, x.want)
			if echo := a.replies[0].(*rmqv2.ChangeInvisibleDurationResponse).GetReceiptHandle(); echo != h {
				t.Errorf("the answer's handle is %q", echo)
			}
			if s := p.state(t.Context()); s.GetInFlight() != 1 {
				t.Errorf("in flight %d", s.GetInFlight())
			}
		})
	}
	none := changeRequest(p.topic, p.group, h, 0)
	none.InvisibleDuration = nil
	c.do(t.Context(), "ChangeInvisibleDuration", none).is(t, "OK") // no time is 0: back at once
	p.finish(p.take(1))
}

// TestManyHandles sends acks with more handles than any client has.
func TestManyHandles(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	p.put(1)
	got := p.take(1)
	c.do(t.Context(), "AckMessage", ackRequest(p.topic, p.group)).is(t, "BAD_REQUEST|INTERNAL_SERVER_ERROR")
	one := ackRequest(p.topic, p.group, got...)
	for range 19999 {
		one.Entries = append(one.Entries, &rmqv2.AckMessageEntry{MessageId: "x", ReceiptHandle: "bad"})
	}
	c.do(t.Context(), "AckMessage", one).is(t, "MULTIPLE_RESULTS|BAD_REQUEST|InvalidArgument")
	same := ackRequest(p.topic, p.group)
	for range 20000 {
		same.Entries = append(same.Entries, ackRequest(p.topic, p.group, got...).GetEntries()...)
	}
	a := c.do(t.Context(), "AckMessage", same)
	if a.is(t, "OK|BAD_REQUEST|InvalidArgument"); a.took > 5*time.Second {
		t.Errorf("took %v", a.took)
	}
	p.finish(got)
}

// until waits for a condition that becomes true without any sign.
func until(t *testing.T, patience time.Duration, ok func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not true within %v", patience)
		}
	}
}
