package proxy

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/proxy/clients"
	"github.com/perigee-mq/perigee/proxy/edge"
)

// meters measure the calls of the messaging service, by method.
type meters struct {
	latency metric.Float64Histogram
	all     []*methodMeter
}

// meter is what the client port is measured with, nil if nobody looks.
func (p *Proxy) meter() func(string) edge.Meter {
	if p.o.Metrics == nil {
		return nil
	}
	r := obs.NewInstruments(p.o.Metrics)
	p.calls = &meters{latency: r.Histogram("rocketmq_rpc_latency",
		"time of calls of clients; a long poll and a telemetry stream last as long as they wait", "milliseconds", obs.Milliseconds(), "request_code", "is_long_polling")}
	return func(method string) edge.Meter {
		long := method == "ReceiveMessage" || method == "PullMessage" || method == "Telemetry"
		m := &methodMeter{method: method, public: make([]atomic.Int64, len(publicCodes)), latency: p.calls.latency, option: metric.WithAttributeSet(attribute.NewSet(
			attribute.String("request_code", method), attribute.Bool("is_long_polling", long)))}
		p.calls.all = append(p.calls.all, m)
		return m
	}
}

// publicCodes are the codes that calls are counted by; others are counted as the first, which is unspecified.
var publicCodes = func() (list []rmqv2.Code) {
	for code := range rmqv2.Code_name {
		list = append(list, rmqv2.Code(code))
	}
	slices.Sort(list)
	return list
}()

// codeAt is where a public code is in publicCodes.
var codeAt = func() map[int32]int {
	at := make(map[int32]int, len(publicCodes))
	for i, code := range publicCodes {
		at[int32(code)] = i
	}
	return at
}()

// grpcCodes is how many codes of gRPC there are.
const grpcCodes = int(codes.Unauthenticated) + 1

// methodMeter counts the calls of a method.
type methodMeter struct {
	method  string
	latency metric.Float64Histogram
	option  metric.MeasurementOption
	open    atomic.Int64
	public  []atomic.Int64 // by place in publicCodes
	failed  [grpcCodes]atomic.Int64
}

// Begin counts a call in.
func (m *methodMeter) Begin() { m.open.Add(1) }

// End counts a call out.
func (m *methodMeter) End(c edge.Call) {
	m.open.Add(-1)
	if c.GRPC == codes.OK {
		m.public[codeAt[c.Code]].Add(1)
	} else {
		m.failed[min(int(c.GRPC), grpcCodes-1)].Add(1)
	}
	m.latency.Record(context.Background(), float64(c.Took)/float64(time.Millisecond), m.option)
}

// register makes the proxy's instruments: observed from plain counters when they are collected.
func register(m metric.Meter, p *Proxy) error {
	r := obs.NewInstruments(m)
	up := r.Gauge("rocketmq_proxy_up", "1 when this proxy serves", "")
	known := r.Gauge("perigee_proxy_clients", "clients known", "")
	pushed := r.Counter("perigee_proxy_clients_pushed_out", "clients that were forgotten to make room, since as many were known as may be")
	producers := r.Gauge("rocketmq_producer_connections", "producers that have sent their settings, by the language of their library", "", "language")
	consumers := r.Gauge("rocketmq_consumer_connections", "consumers that have sent their settings, by the language of their library and by kind", "", "language", "consume_mode")
	mixed := r.Gauge("perigee_proxy_mixed_subscriptions", "1 for a group whose push consumers here subscribe to different topics or filters; at most 100 groups", "", "consumer_group")
	streams := r.Gauge("perigee_proxy_telemetry_streams", "telemetry streams of clients that are open", "")
	open := r.Gauge("perigee_proxy_calls_open", "calls of clients that are under way", "", "method")
	requests := r.Counter("perigee_proxy_requests", "calls of clients, by method and code: the public one, or GRPC_ and that of gRPC where the call itself failed", "method", "code")
	waiting := r.Gauge("perigee_proxy_receives_waiting", "receives that wait for messages", "")
	connections := r.Gauge("perigee_proxy_connections", "connections of clients that are open", "")
	refused := r.Counter("perigee_proxy_refused", "what was refused because a bound of the proxy was reached, by the bound", "bound")
	unread := r.Gauge("perigee_proxy_unread", "messages that wait for slow readers", "bytes")
	polls := r.Counter("perigee_proxy_polls", "what the long polls have done, by kind", "kind")
	switched := r.Counter("perigee_proxy_masters_switched", "how often this proxy has gone from the master of a broker group to the next one")
	again := r.Counter("perigee_proxy_calls_repeated", "calls made again, since their master could not be asked or did not answer, by reason", "reason")
	gaveUp := r.Counter("perigee_proxy_calls_given_up", "calls that waited for a master in vain")
	awaiting := r.Gauge("perigee_proxy_calls_awaiting_master", "calls that wait for a master of their broker group", "")
	isolated := r.Gauge("perigee_proxy_isolated", "1 for a broker group that sends which may choose keep away from, since it is slow or failing; absent for one that no such send was made to", "", "shard")
	isolations := r.Counter("perigee_proxy_isolations", "how often a broker group was isolated")
	cut := r.Counter("perigee_proxy_requests_cut", "requests that were under way to a broker when its connection ended")
	checks := r.Counter("perigee_proxy_transaction_checks", "checks of transactions, by what became of them", "result")
	return r.Observe(func(_ context.Context, o metric.Observer) error {
		serving := int64(0)
		if p.Healthy() == nil {
			serving = 1
		}
		s := p.polls.Stats()
		o.ObserveInt64(up, serving)
		o.ObserveInt64(known, int64(p.clients.Len()))
		o.ObserveInt64(pushed, p.clients.PushedOut())
		o.ObserveInt64(waiting, int64(s.Waiting))
		load := p.edge.Load()
		bytes, unreadRefused := p.server.Unread()
		o.ObserveInt64(connections, load.Connections)
		o.ObserveInt64(unread, bytes)
		for bound, n := range map[string]int64{
			"connections": load.ConnectionsRefused, "handshake": load.HandshakesLate, "calls": load.CallsRefused, "receives_waiting": int64(s.Refused), "unread": unreadRefused,
		} {
			o.ObserveInt64(refused, n, metric.WithAttributes(attribute.String("bound", bound)))
		}
		if links := p.brokers.links(); links != nil {
			o.ObserveInt64(refused, links.Exhausted.Load(), metric.WithAttributes(attribute.String("bound", "link_unsent")))
			o.ObserveInt64(cut, links.Cut.Load())
		}
		if s, known := p.isolation.Stats(); known {
			for id, is := range s.Isolated {
				if sh := p.routes.Load().Shard(id); sh != nil {
					o.ObserveInt64(isolated, map[bool]int64{true: 1}[is], metric.WithAttributes(attribute.String("shard", sh.Name)))
				}
			}
			o.ObserveInt64(isolations, s.Times)
		}
		if s, known := p.masters.Stats(); known {
			for reason, n := range s.Again {
				o.ObserveInt64(again, n, metric.WithAttributes(attribute.String("reason", reason)))
			}
			o.ObserveInt64(gaveUp, s.GaveUp)
			o.ObserveInt64(awaiting, s.Waiting)
		}
		if n, known := p.brokers.switches(); known {
			o.ObserveInt64(switched, n)
		}
		for who, n := range p.clients.Kinds() {
			language := attribute.String("language", languageName(who.Language))
			if who.Type == clients.Producer {
				o.ObserveInt64(producers, int64(n), metric.WithAttributes(language))
			} else {
				o.ObserveInt64(consumers, int64(n), metric.WithAttributes(language, attribute.String("consume_mode", modeName(who.Type))))
			}
		}
		for _, group := range p.clients.Mixed(100) {
			o.ObserveInt64(mixed, 1, metric.WithAttributes(attribute.String("consumer_group", group)))
		}
		p.calls.observe(o, open, requests, streams)
		for result, n := range map[string]uint64{"sent": p.checks.Stats().Sent, "no_producer": p.checks.Stats().Unsent} {
			o.ObserveInt64(checks, int64(n), metric.WithAttributes(attribute.String("result", result)))
		}
		for kind, n := range map[string]uint64{
			"receives": s.Receives, "refused": s.Refused, "pops": s.Pops, "broker_requests": s.Requests, "timer_wakes": s.TimerWakes,
			"given_back": s.GivenBack, "not_given_back": s.NotGiven,
		} {
			o.ObserveInt64(polls, int64(n), metric.WithAttributes(attribute.String("kind", kind)))
		}
		return nil
	})
}

// observe shows what was counted. A code that no call has got is absent.
func (m *meters) observe(o metric.Observer, open metric.Int64ObservableGauge, requests metric.Int64ObservableCounter, streams metric.Int64ObservableGauge) {
	for _, c := range m.all {
		method := attribute.String("method", c.method)
		o.ObserveInt64(open, c.open.Load(), metric.WithAttributes(method))
		if c.method == "Telemetry" {
			o.ObserveInt64(streams, c.open.Load())
		}
		for i, code := range publicCodes {
			if n := c.public[i].Load(); n > 0 {
				o.ObserveInt64(requests, n, metric.WithAttributes(method, attribute.String("code", code.String())))
			}
		}
		for code := range grpcCodes {
			if n := c.failed[code].Load(); n > 0 {
				o.ObserveInt64(requests, n, metric.WithAttributes(method, attribute.String("code", "GRPC_"+strings.ToUpper(codes.Code(code).String()))))
			}
		}
	}
}

func languageName(n int32) string {
	if n == 0 {
		return "unknown"
	}
	return strings.ToLower(rmqv2.Language(n).String())
}

func modeName(t clients.Type) string {
	switch t {
	case clients.PushConsumer:
		return "push"
	case clients.SimpleConsumer:
		return "simple"
	case clients.PullConsumer:
		return "pull"
	case clients.LitePush:
		return "lite_push"
	case clients.LiteSimple:
		return "lite_simple"
	}
	return "unknown"
}
