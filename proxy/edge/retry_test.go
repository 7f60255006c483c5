package edge

import (
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
)

// TestRetryAfterIsATrailer: every shape of call carries the pause, and none carries one that nobody asked for.
func TestRetryAfterIsATrailer(t *testing.T) {
	pause := 1500 * time.Millisecond
	ok := statusBytes(t)
	_, addr := start(t, Options{Service: Service{
		QueryRoute:  func(c call.Unary) { c.RetryAfter(pause); c.Reply(ok) },
		Heartbeat:   func(c call.Unary) { c.Reply(ok) },
		PullMessage: func(c call.Stream) { c.RetryAfter(pause); c.End() },
		Telemetry: func(c call.Duplex) error {
			c.RetryAfter(pause)
			return &call.Failure{Code: call.ResourceExhausted, Text: "too much"}
		},
	}})
	c := client(t, addr)
	var got metadata.MD
	if _, err := c.QueryRoute(short(t), &rmqv2.QueryRouteRequest{}, grpc.Trailer(&got)); err != nil {
		t.Fatal(err)
	}
	check := func(what string, md metadata.MD) {
		t.Helper()
		if v := md.Get("retry-after-ms"); len(v) != 1 || v[0] != "1500" {
			t.Errorf("%s: retry-after-ms is %q", what, v)
		}
	}
	check("unary", got)
	got = nil
	if _, err := c.Heartbeat(short(t), &rmqv2.HeartbeatRequest{}, grpc.Trailer(&got)); err != nil {
		t.Fatal(err)
	}
	if v := got.Get("retry-after-ms"); len(v) != 0 {
		t.Errorf("a call that was not refused: retry-after-ms is %q", v)
	}
	s, err := c.PullMessage(short(t), &rmqv2.PullMessageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = s.Recv()
	check("stream", s.Trailer())
	d, err := c.Telemetry(short(t))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = d.Recv()
	check("duplex", d.Trailer())
}
