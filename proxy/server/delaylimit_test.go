package server

import (
	"strings"
	"testing"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/route"
)

// TestDelayLimits: a topic's limit stands in the place of the proxy's, be it shorter or longer, and the answer
// says which one it was.
func TestDelayLimits(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		topic string
		in    time.Duration
		says  string // "" if it is stored
	}{
		{"delay", 40 * day, ""},
		{"delay", 40*day + time.Millisecond, "960h0m0s away, the limit of this proxy (--max-delay)"},
		{"soon", time.Hour, ""},
		{"soon", time.Hour + time.Millisecond, "1h0m0s away, the limit of topic soon"},
		{"late", 90 * day, ""},
		{"late", 90*day + time.Millisecond, "2160h0m0s away, the limit of topic late"},
		{"unknown", 41 * day, "the limit of this proxy"},
	} {
		r := newWorld(t, nil).send(t, join(in(tc.in), to(tc.topic))).GetStatus()
		code := rmqv2.Code_ILLEGAL_DELIVERY_TIME
		if tc.says == "" {
			code = rmqv2.Code_OK
		}
		if r.GetCode() != code || !strings.Contains(r.GetMessage(), tc.says) {
			t.Errorf("%s in %v: %v", tc.topic, tc.in, r)
		}
	}
}

// TestDelayLimitOfATopicMadeMeanwhile: the limit of a topic that another client makes between the check and the
// look-up counts.
func TestDelayLimitOfATopicMadeMeanwhile(t *testing.T) {
	creator := &testCreator{limits: route.Limits{MaxDelay: time.Minute}}
	w := newWorld(t, func(o *Options) { o.Creator = creator; creator.table = o.Routes })
	r := w.send(t, to("fresh"), join(in(time.Minute+time.Millisecond), to("fresh"))).GetStatus()
	if r.GetCode() != rmqv2.Code_ILLEGAL_DELIVERY_TIME || len(w.brokers[1].sent) != 0 {
		t.Errorf("answer is %v", r)
	}
	if r := w.send(t, to("fresh"), join(in(time.Minute), to("fresh"))).GetStatus(); r.GetCode() != rmqv2.Code_OK {
		t.Errorf("answer is %v", r)
	}
}
