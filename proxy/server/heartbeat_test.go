package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/clients"
)

func (s *site) beat(t *testing.T, kind rmqv2.ClientType, group string, change ...func(*fakeInfo)) rmqv2.Code {
	t.Helper()
	req := &rmqv2.HeartbeatRequest{ClientType: kind}
	if group != "" {
		req.Group = res(group)
	}
	return ask(t, s.Heartbeat, req, &rmqv2.HeartbeatResponse{}, change...).GetStatus().GetCode()
}

func TestHeartbeat(t *testing.T) {
	const none, prod, push, simple = clients.Unknown, rmqv2.ClientType_PRODUCER, rmqv2.ClientType_PUSH_CONSUMER, rmqv2.ClientType_SIMPLE_CONSUMER
	ok, illegal, missing := rmqv2.Code_OK, rmqv2.Code_ILLEGAL_CONSUMER_GROUP, rmqv2.Code_CONSUMER_GROUP_NOT_FOUND
	for name, c := range map[string]struct {
		settings clients.Type
		kind     rmqv2.ClientType
		group    string
		want     rmqv2.Code
	}{
		"bare producer":              {none, prod, "", ok},
		"bare push":                  {none, push, "g", ok},
		"bare lite simple":           {none, rmqv2.ClientType_LITE_SIMPLE_CONSUMER, "g", ok},
		"bare type 99":               {none, 99, "g", ok},
		"bare without type":          {none, 0, "g", ok},
		"bare push without group":    {none, push, "", illegal},
		"bare push, illegal group":   {none, push, "conf g1", illegal},
		"bare push, missing group":   {none, push, "nobody", missing},
		"producer":                   {clients.Producer, prod, "", ok},
		"producer with a group":      {clients.Producer, push, "conf g1", ok},
		"push":                       {clients.PushConsumer, push, "g", ok},
		"Go's push":                  {clients.PushConsumer, simple, "g", ok},
		"simple":                     {clients.SimpleConsumer, simple, "g", ok},
		"simple, calls itself prod":  {clients.SimpleConsumer, prod, "g", ok},
		"simple without group":       {clients.SimpleConsumer, simple, "", illegal},
		"simple of another group":    {clients.SimpleConsumer, simple, "other", ok},
		"simple of a missing group":  {clients.SimpleConsumer, simple, "nobody", missing},
		"simple of an illegal group": {clients.SimpleConsumer, simple, "conf g1", illegal},
		"simple of a long group":     {clients.SimpleConsumer, simple, strings.Repeat("g", 121), illegal},
		"simple without type":        {clients.SimpleConsumer, 0, "g", ok},
	} {
		s := newSite()
		if c.settings != none {
			s.o.Clients.Put("c", clients.Settings{Type: c.settings}, nil, time.Now())
		}
		require.Equal(t, c.want, s.beat(t, c.kind, c.group), name)
	}
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, newSite().beat(t, push, "g", noClient))
}

// TestHeartbeatIsReported: of consumers that may hold messages for as long as they live.
func TestHeartbeatIsReported(t *testing.T) {
	s := newSite()
	s.beat(t, rmqv2.ClientType_PRODUCER, "")
	since := time.Now().Add(-time.Minute)
	require.Empty(t, s.o.Clients.Alive(since))
	s.beat(t, rmqv2.ClientType_SIMPLE_CONSUMER, "g") // a push consumer of Go, perhaps
	require.Equal(t, []string{"c"}, s.o.Clients.Alive(since))
}

func TestHeartbeatMakesMissingGroup(t *testing.T) {
	s := newSite(func(o *Options) { o.Creator = maker{o.Routes} })
	require.Equal(t, rmqv2.Code_OK, s.beat(t, rmqv2.ClientType_PUSH_CONSUMER, "new-group"))
	require.NotNil(t, s.o.Routes.Load().Group([]byte("new-group")))
}

func (s *site) leave(t *testing.T, group string, change ...func(*fakeInfo)) rmqv2.Code {
	t.Helper()
	req := &rmqv2.NotifyClientTerminationRequest{}
	if group != "" {
		req.Group = res(group)
	}
	return ask(t, s.NotifyClientTermination, req, &rmqv2.NotifyClientTerminationResponse{}, change...).GetStatus().GetCode()
}

// ended lists who said goodbye to any broker.
func (s *site) ended() (all []string) {
	for _, b := range s.brokers {
		b.mu.Lock()
		all = append(all, b.ended...)
		b.mu.Unlock()
	}
	slices.Sort(all)
	return all
}

func TestTermination(t *testing.T) {
	both := []string{"c", "c"}
	for name, c := range map[string]struct {
		settings clients.Type
		group    string
		want     rmqv2.Code
		ended    []string
	}{
		"simple":               {clients.SimpleConsumer, "g", rmqv2.Code_OK, both},
		"push, other group":    {clients.PushConsumer, "other", rmqv2.Code_OK, both},
		"push, missing group":  {clients.PushConsumer, "nobody", rmqv2.Code_OK, both},
		"simple, no group":     {clients.SimpleConsumer, "", rmqv2.Code_ILLEGAL_CONSUMER_GROUP, nil},
		"simple, illegal":      {clients.SimpleConsumer, "conf g1", rmqv2.Code_ILLEGAL_CONSUMER_GROUP, nil},
		"producer":             {clients.Producer, "", rmqv2.Code_OK, nil},
		"not known":            {clients.Unknown, "", rmqv2.Code_OK, both},
		"not known with group": {clients.Unknown, "g", rmqv2.Code_OK, both},
	} {
		s := newSite()
		if c.settings != clients.Unknown {
			s.o.Clients.Put("c", clients.Settings{Type: c.settings}, nil, time.Now())
		}
		require.Equal(t, c.want, s.leave(t, c.group), name)
		require.Equal(t, c.ended, s.ended(), name)
		_, known := s.o.Clients.Settings("c")
		require.Equal(t, c.want != rmqv2.Code_OK, known, name)
	}
	s := newSite()
	require.Equal(t, rmqv2.Code_CLIENT_ID_REQUIRED, s.leave(t, "g", noClient))
	require.Empty(t, s.ended())
}
