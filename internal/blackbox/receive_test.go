package blackbox

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

func invisible(d time.Duration) func(*rmqv2.ReceiveMessageRequest) {
	return func(r *rmqv2.ReceiveMessageRequest) { r.InvisibleDuration = durationpb.New(d) }
}

func expression(typ rmqv2.FilterType, text string) func(*rmqv2.ReceiveMessageRequest) {
	return func(r *rmqv2.ReceiveMessageRequest) {
		r.FilterExpression = &rmqv2.FilterExpression{Type: typ, Expression: text}
	}
}

// receiveCase is one receive that differs from a good one.
type receiveCase struct {
	name   string
	change func(*rmqv2.ReceiveMessageRequest)
	want   string
	most   int // messages that may come, of 40
}

func receiveCases() []receiveCase {
	const badTime = "ILLEGAL_INVISIBLE_TIME"
	field := func(d *durationpb.Duration) func(*rmqv2.ReceiveMessageRequest) {
		return func(r *rmqv2.ReceiveMessageRequest) { r.InvisibleDuration = d }
	}
	batch := func(n int32) func(*rmqv2.ReceiveMessageRequest) {
		return func(r *rmqv2.ReceiveMessageRequest) { r.BatchSize = n }
	}
	return []receiveCase{
		{"no invisible time", field(nil), badTime, 0},
		{"invisible time 0", invisible(0), badTime, 0},
		{"a nanosecond under 10 s", invisible(10*time.Second - 1), badTime, 0},
		{"10 s", invisible(10 * time.Second), "OK", 32},
		{"12 h", invisible(12 * time.Hour), "OK", 32},
		{"a millisecond over 12 h", invisible(12*time.Hour + time.Millisecond), badTime, 0},
		{"a nanosecond over 12 h", invisible(12*time.Hour + 1), badTime, 0},
		{"negative", invisible(-time.Minute), badTime, 0},
		{"the longest", field(&durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}), badTime, 0},
		{"the least", field(&durationpb.Duration{Seconds: math.MinInt64, Nanos: math.MinInt32}), badTime, 0},
		{"nanoseconds out of range", field(&durationpb.Duration{Seconds: -1 << 40, Nanos: math.MaxInt32}), badTime, 0},
		{"auto_renew with 1 s", func(r *rmqv2.ReceiveMessageRequest) { r.AutoRenew = true; invisible(time.Second)(r) }, "OK", 32},
		{"auto_renew with -1 s", func(r *rmqv2.ReceiveMessageRequest) { r.AutoRenew = true; invisible(-time.Second)(r) }, "OK", 32},

		{"batch size 0", batch(0), "OK|BAD_REQUEST|MESSAGE_NOT_FOUND", 1},
		{"batch size -1", batch(-1), "OK|BAD_REQUEST", 1},
		{"the least batch size", batch(math.MinInt32), "OK|BAD_REQUEST", 1},
		{"batch size 1", batch(1), "OK", 1},
		{"batch size 33", batch(33), "OK", 32},
		{"the largest batch size", batch(math.MaxInt32), "OK", 32},

		{"only separators", expression(rmqv2.FilterType_TAG, "||"), "ILLEGAL_FILTER_EXPRESSION", 0},
		{"more separators", expression(rmqv2.FilterType_TAG, "||||"), "ILLEGAL_FILTER_EXPRESSION", 0},
		{"empty SQL", expression(rmqv2.FilterType_SQL, ""), "ILLEGAL_FILTER_EXPRESSION", 0},
		{"1 MiB of tags", expression(rmqv2.FilterType_TAG, strings.Repeat("tag||", 1<<20/5)+"x"), "ILLEGAL_FILTER_EXPRESSION|BAD_REQUEST", 0},
		{"filter type 0", expression(0, "*"), "OK", 32},
		{"filter type 99", expression(99, "*"), "OK", 32},
		{"filter type -1", expression(-1, "*"), "OK", 32},
		{"no filter", func(r *rmqv2.ReceiveMessageRequest) { r.FilterExpression = nil }, "OK", 32},

		{"a queue that is not there", func(r *rmqv2.ReceiveMessageRequest) { r.MessageQueue.Id = 99 }, "OK", 32},
		{"the least queue", func(r *rmqv2.ReceiveMessageRequest) { r.MessageQueue.Id = math.MinInt32 }, "OK", 32},
		{"permission 99", func(r *rmqv2.ReceiveMessageRequest) { r.MessageQueue.Permission = 99 }, "OK", 32},
		{"an unknown broker", func(r *rmqv2.ReceiveMessageRequest) { r.MessageQueue.Broker = &rmqv2.Broker{Name: "nobody"} }, "OK|BAD_REQUEST", 32},
		{"an unknown broker with an attempt id", func(r *rmqv2.ReceiveMessageRequest) {
			r.MessageQueue.Broker = &rmqv2.Broker{Name: "nobody"}
			r.AttemptId = new("an attempt")
		}, "OK|BAD_REQUEST", 32},
		{"a negative polling time", func(r *rmqv2.ReceiveMessageRequest) { r.LongPollingTimeout = durationpb.New(-time.Hour) }, "OK", 32},
		{"the longest polling time", func(r *rmqv2.ReceiveMessageRequest) {
			r.LongPollingTimeout = &durationpb.Duration{Seconds: math.MaxInt64, Nanos: math.MaxInt32}
		}, "OK", 32},
		{"an attempt id of 1 MiB", func(r *rmqv2.ReceiveMessageRequest) {
			r.AttemptId = new(strings.Repeat("a", 1<<20))
		}, "OK|BAD_REQUEST", 32},
		{"an attempt id with NUL", func(r *rmqv2.ReceiveMessageRequest) {
			r.AttemptId = new("a\x00b")
		}, "OK|BAD_REQUEST", 32},
	}
}

// TestReceive makes receives each of which has one thing wrong or at a limit, from places with 40
// messages. Who was refused has leased nothing.
func TestReceive(t *testing.T) {
	t.Parallel()
	for _, x := range receiveCases() {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, sharedDev(t).grpc)
			p := newPlace(t, c)
			var list []*rmqv2.Message
			for range 40 {
				list = append(list, p.message("m"))
			}
			p.send(t.Context(), c, list...).is(t, "OK")
			a := p.receive(t.Context(), c, x.change)
			a.is(t, x.want)
			if n := len(a.messages); n > x.most {
				t.Errorf("%d messages, want at most %d", n, x.most)
			}
			s := p.state(t.Context())
			if int(s.GetInFlight()) != len(a.messages) || int(s.GetReady()) != 40-len(a.messages) {
				t.Errorf("%d came; leased %d, ready %d", len(a.messages), s.GetInFlight(), s.GetReady())
			}
			if len(a.messages) > 0 {
				p.finish(a.messages)
			}
			for _, m := range p.take(40 - len(a.messages)) {
				if n := m.GetSystemProperties().GetDeliveryAttempt(); n != 1 {
					t.Errorf("a message that nobody had comes with attempt %d", n)
				}
				p.finish([]*rmqv2.Message{m})
			}
		})
	}
}

// TestPolling is about receives that cannot wait as long as they want.
func TestPolling(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	for _, x := range []struct {
		name           string
		poll, deadline time.Duration // poll < 0: none
		version        string
		want           string
		least, most    time.Duration
	}{
		{"deadline before the shortest poll", 10 * time.Second, 4 * time.Second, "5.1.3", "ILLEGAL_POLLING_TIME", 0, 3 * time.Second},
		{"the same, the oldest client that knows the code", 10 * time.Second, 4 * time.Second, "5.0.3", "ILLEGAL_POLLING_TIME", 0, 3 * time.Second},
		{"the same, a client that does not", 10 * time.Second, 4 * time.Second, "5.0.2", "BAD_REQUEST", 0, 3 * time.Second},
		{"the same, Node", 10 * time.Second, 4 * time.Second, "1.0.7", "BAD_REQUEST", 0, 3 * time.Second},
		{"the same, no version", 10 * time.Second, 4 * time.Second, "", "BAD_REQUEST", 0, 3 * time.Second},
		{"a deadline of 0.3 s", 10 * time.Second, 300 * time.Millisecond, "5.1.3", "ILLEGAL_POLLING_TIME", 0, 300 * time.Millisecond},
		{"poll and deadline short", time.Second, 4 * time.Second, "5.1.3", "ILLEGAL_POLLING_TIME|MESSAGE_NOT_FOUND", 0, 4 * time.Second},
		{"deadline under the poll", 10 * time.Second, 6 * time.Second, "5.1.3", "MESSAGE_NOT_FOUND", 5 * time.Second, 6 * time.Second},
		{"poll and deadline equal", 8 * time.Second, 8 * time.Second, "5.1.3", "MESSAGE_NOT_FOUND", 7 * time.Second, 8 * time.Second},
		{"poll 0", 0, 30 * time.Second, "5.1.3", "MESSAGE_NOT_FOUND", 5 * time.Second, 6 * time.Second},
		{"poll 5 s", 5 * time.Second, 8 * time.Second, "5.1.3", "MESSAGE_NOT_FOUND", 5 * time.Second, 6 * time.Second},
		{"no poll", -1, 8 * time.Second, "5.1.3", "MESSAGE_NOT_FOUND", 5 * time.Second, 8 * time.Second},
		{"poll an hour", time.Hour, time.Hour, "5.1.3", "MESSAGE_NOT_FOUND", 20 * time.Second, 21 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), x.deadline)
			defer cancel()
			a := p.receive(ctx, c.with("x-mq-client-version", x.version), func(r *rmqv2.ReceiveMessageRequest) {
				r.LongPollingTimeout = durationpb.New(x.poll)
				if x.poll < 0 {
					r.LongPollingTimeout = nil
				}
			})
			a.is(t, x.want)
			if a.took < x.least-50*time.Millisecond || a.took > x.most+500*time.Millisecond {
				t.Errorf("took %v, want %v to %v", a.took, x.least, x.most)
			}
		})
	}
}

// TestErrorsAreNotHurried: some clients ask again at once after an error of a receive.
func TestErrorsAreNotHurried(t *testing.T) {
	t.Parallel()
	c := connect(t, sharedDev(t).grpc)
	p := newPlace(t, c)
	for range 5 {
		a := p.receive(t.Context(), c, invisible(0))
		a.is(t, "ILLEGAL_INVISIBLE_TIME")
		if a.took < 90*time.Millisecond {
			t.Errorf("the error came after %v", a.took)
		}
	}
}
