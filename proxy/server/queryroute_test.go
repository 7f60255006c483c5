package server

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/route"
)

func endpointsAt(scheme rmqv2.AddressScheme, addresses ...string) *rmqv2.Endpoints {
	e := &rmqv2.Endpoints{Scheme: scheme}
	for _, host := range addresses {
		e.Addresses = append(e.Addresses, &rmqv2.Address{Host: host, Port: 8081})
	}
	return e
}

func (w *world) route(t *testing.T, topic *rmqv2.Resource, at *rmqv2.Endpoints) *rmqv2.QueryRouteResponse {
	t.Helper()
	u := newUnary(t, &rmqv2.QueryRouteRequest{Topic: topic, Endpoints: at})
	w.QueryRoute(u)
	r := &rmqv2.QueryRouteResponse{}
	u.into(t, r)
	return r
}

func TestRoute(t *testing.T) {
	w := newWorld(t, nil)
	topic := &rmqv2.Resource{ResourceNamespace: "ns", Name: "spread"}
	for _, at := range []*rmqv2.Endpoints{
		endpointsAt(rmqv2.AddressScheme_IPv4, "127.0.0.1"),
		endpointsAt(rmqv2.AddressScheme_IPv6, "::1"),
		endpointsAt(rmqv2.AddressScheme_DOMAIN_NAME, "mq.example"),
		endpointsAt(rmqv2.AddressScheme_IPv4, "10.0.0.1", "10.0.0.2"),
	} {
		want := &rmqv2.QueryRouteResponse{Status: &rmqv2.Status{Code: rmqv2.Code_OK, Message: "OK"}}
		for _, q := range []struct {
			broker string
			id     int32
		}{{"alpha", 0}, {"alpha", 1}, {"alpha", 2}, {"beta", 0}} {
			want.MessageQueues = append(want.MessageQueues, &rmqv2.MessageQueue{
				Topic: topic, Id: q.id, Permission: rmqv2.Permission_READ_WRITE,
				Broker: &rmqv2.Broker{Name: q.broker, Endpoints: at},
				AcceptMessageTypes: []rmqv2.MessageType{
					rmqv2.MessageType_NORMAL, rmqv2.MessageType_FIFO, rmqv2.MessageType_DELAY, rmqv2.MessageType_TRANSACTION,
				},
			})
		}
		if r := w.route(t, topic, at); !proto.Equal(r, want) {
			t.Errorf("route is %v\nwant %v", r, want)
		}
	}
}

// TestRouteStaysWithoutMaster: silence of a broker never takes its queues away.
func TestRouteStaysWithoutMaster(t *testing.T) {
	w := newWorld(t, nil)
	at := endpointsAt(rmqv2.AddressScheme_IPv4, "127.0.0.1")
	before := w.route(t, &rmqv2.Resource{Name: "spread"}, at)
	w.table.Apply(route.Update{Shards: []route.Shard{{ID: 1, Name: "alpha"}, {ID: 2, Name: "beta"}}})
	if after := w.route(t, &rmqv2.Resource{Name: "spread"}, at); !proto.Equal(before, after) {
		t.Errorf("route is %v", after)
	}
}

func TestRouteRefusals(t *testing.T) {
	w := newWorld(t, nil)
	fine := endpointsAt(rmqv2.AddressScheme_IPv4, "127.0.0.1")
	port := func(p int32) *rmqv2.Endpoints {
		e := endpointsAt(rmqv2.AddressScheme_IPv4, "127.0.0.1")
		e.Addresses[0].Port = p
		return e
	}
	for _, tc := range []struct {
		name string
		at   *rmqv2.Endpoints
		want rmqv2.Code
	}{
		{"", fine, rmqv2.Code_ILLEGAL_TOPIC},
		{"   ", fine, rmqv2.Code_ILLEGAL_TOPIC},
		{"a b", fine, rmqv2.Code_ILLEGAL_TOPIC},
		{"a.b", fine, rmqv2.Code_ILLEGAL_TOPIC},
		{"конф", fine, rmqv2.Code_ILLEGAL_TOPIC},
		{strings.Repeat("a", 128), fine, rmqv2.Code_ILLEGAL_TOPIC},
		{"RMQ_SYS_TRANS_HALF_TOPIC", fine, rmqv2.Code_ILLEGAL_TOPIC},
		{"rmq_sys_anything", fine, rmqv2.Code_ILLEGAL_TOPIC},
		{"ns%normal", fine, rmqv2.Code_TOPIC_NOT_FOUND},
		{"missing", fine, rmqv2.Code_TOPIC_NOT_FOUND},
		{strings.Repeat("a", 127), fine, rmqv2.Code_TOPIC_NOT_FOUND},
		{"%DLQ%none", fine, rmqv2.Code_TOPIC_NOT_FOUND},
		{"normal", port(0), rmqv2.Code_ILLEGAL_ACCESS_POINT},
		{"normal", port(-1), rmqv2.Code_ILLEGAL_ACCESS_POINT},
		{"normal", port(65536), rmqv2.Code_ILLEGAL_ACCESS_POINT},
		{"normal", endpointsAt(rmqv2.AddressScheme_IPv4, ""), rmqv2.Code_ILLEGAL_ACCESS_POINT},
		{"normal", endpointsAt(0, "127.0.0.1"), rmqv2.Code_ILLEGAL_ACCESS_POINT},
	} {
		r := w.route(t, &rmqv2.Resource{Name: tc.name}, tc.at)
		if r.GetStatus().GetCode() != tc.want || len(r.GetMessageQueues()) != 0 {
			t.Errorf("topic %.20q at %v: %v, want %v", tc.name, tc.at, r, tc.want)
		}
	}
	if r := w.route(t, nil, fine); r.GetStatus().GetCode() != rmqv2.Code_ILLEGAL_TOPIC {
		t.Errorf("no topic: %v", r)
	}
}

// TestRouteForNoEndpoints gives the proxy's own address to a client that named none.
func TestRouteForNoEndpoints(t *testing.T) {
	for _, tc := range []struct {
		advertise, host string
		port            int32
		scheme          rmqv2.AddressScheme
	}{
		{"203.0.113.5:8081", "203.0.113.5", 8081, rmqv2.AddressScheme_IPv4},
		{"[2001:db8::1]:443", "2001:db8::1", 443, rmqv2.AddressScheme_IPv6},
		{"[::ffff:10.0.0.1]:1", "10.0.0.1", 1, rmqv2.AddressScheme_IPv4},
		{"mq.example:8081", "mq.example", 8081, rmqv2.AddressScheme_DOMAIN_NAME},
		{"", "192.0.2.1", 8081, rmqv2.AddressScheme_IPv4}, // where the call was accepted
	} {
		w := newWorld(t, func(o *Options) { o.Advertise = tc.advertise })
		for _, at := range []*rmqv2.Endpoints{nil, {Scheme: rmqv2.AddressScheme_IPv4}} {
			got := w.route(t, &rmqv2.Resource{Name: "normal"}, at).GetMessageQueues()[3].GetBroker().GetEndpoints()
			want := &rmqv2.Endpoints{Scheme: tc.scheme, Addresses: []*rmqv2.Address{{Host: tc.host, Port: tc.port}}}
			if !proto.Equal(got, want) {
				t.Errorf("advertise %q: %v", tc.advertise, got)
			}
		}
	}
}

func TestRouteMakesTopics(t *testing.T) {
	creator := &testCreator{}
	w := newWorld(t, func(o *Options) { o.Creator = creator; creator.table = o.Routes })
	r := w.route(t, &rmqv2.Resource{Name: "fresh"}, endpointsAt(rmqv2.AddressScheme_IPv4, "127.0.0.1"))
	if len(r.GetMessageQueues()) != 8 || r.GetMessageQueues()[0].GetTopic().GetName() != "fresh" {
		t.Errorf("route is %v", r)
	}
	creator.fail = mqerr.New(mqerr.Timeout, "the controller is slow")
	if r := w.route(t, &rmqv2.Resource{Name: "slow"}, nil); r.GetStatus().GetCode() != rmqv2.Code_PROXY_TIMEOUT {
		t.Errorf("route is %v", r)
	}
}

func (w *world) assign(t *testing.T, topic, group string, at *rmqv2.Endpoints) *rmqv2.QueryAssignmentResponse {
	t.Helper()
	u := newUnary(t, &rmqv2.QueryAssignmentRequest{Topic: &rmqv2.Resource{Name: topic}, Group: &rmqv2.Resource{Name: group}, Endpoints: at})
	w.QueryAssignment(u)
	r := &rmqv2.QueryAssignmentResponse{}
	u.into(t, r)
	return r
}

func TestAssignment(t *testing.T) {
	w := newWorld(t, nil)
	at := endpointsAt(rmqv2.AddressScheme_DOMAIN_NAME, "mq.example")
	type queue struct {
		broker string
		id     int32
	}
	for group, queues := range map[string][]queue{
		"plain":   {{"alpha", -1}, {"beta", -1}},
		"unknown": {{"alpha", -1}, {"beta", -1}},
		"ordered": {{"alpha", 0}, {"alpha", 1}, {"alpha", 2}, {"beta", 0}},
	} {
		want := &rmqv2.QueryAssignmentResponse{Status: &rmqv2.Status{Code: rmqv2.Code_OK, Message: "OK"}}
		for _, q := range queues {
			want.Assignments = append(want.Assignments, &rmqv2.Assignment{MessageQueue: &rmqv2.MessageQueue{
				Topic: &rmqv2.Resource{Name: "spread"}, Id: q.id, Permission: rmqv2.Permission_READ_WRITE,
				Broker: &rmqv2.Broker{Name: q.broker, Endpoints: at},
			}})
		}
		if r := w.assign(t, "spread", group, at); !proto.Equal(r, want) {
			t.Errorf("group %s: %v", group, r)
		}
	}
	for _, tc := range []struct {
		topic, group string
		want         rmqv2.Code
	}{
		{"", "plain", rmqv2.Code_ILLEGAL_TOPIC},
		{"", "", rmqv2.Code_ILLEGAL_TOPIC},
		{"missing", "", rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		{"normal", "a b", rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		{"normal", "CID_RMQ_SYS_x", rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		{"normal", strings.Repeat("a", 121), rmqv2.Code_ILLEGAL_CONSUMER_GROUP},
		{"normal", strings.Repeat("a", 120), rmqv2.Code_OK},
		{"missing", "plain", rmqv2.Code_TOPIC_NOT_FOUND},
	} {
		r := w.assign(t, tc.topic, tc.group, at)
		if r.GetStatus().GetCode() != tc.want || (len(r.GetAssignments()) == 0) != (tc.want != rmqv2.Code_OK) {
			t.Errorf("topic %q group %.20q: %v, want %v", tc.topic, tc.group, r, tc.want)
		}
	}
	own := w.assign(t, "normal", "plain", nil).GetAssignments()[0].GetMessageQueue().GetBroker().GetEndpoints()
	if own.GetAddresses()[0].GetHost() != "203.0.113.5" {
		t.Errorf("without endpoints: %v", own)
	}
}

// TestSharedPrologue asks the calls of this file without a client id and with garbage.
func TestSharedPrologue(t *testing.T) {
	w := newWorld(t, nil)
	for name, f := range map[string]func(call.Unary){"QueryRoute": w.QueryRoute, "QueryAssignment": w.QueryAssignment} {
		u := newUnary(t, &rmqv2.QueryRouteRequest{})
		u.headers = nil
		f(u)
		r := &rmqv2.QueryRouteResponse{}
		if u.into(t, r); r.GetStatus().GetCode() != rmqv2.Code_CLIENT_ID_REQUIRED {
			t.Errorf("%s without client id: %v", name, r)
		}
		u = newUnary(t, &rmqv2.QueryRouteRequest{})
		u.request = []byte{0xff, 0xff, 0xff, 0xff}
		f(u)
		if <-u.done; u.code != call.InvalidArgument {
			t.Errorf("%s of garbage: code %d", name, u.code)
		}
	}
}
