package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/proxy"
	"github.com/perigee-mq/perigee/proxy/server"
)

// TestBoundsAreChecked: the defaults are good, and each bound that makes no sense is named in the error.
func TestBoundsAreChecked(t *testing.T) {
	edge := func(change func(*edgeBounds)) error {
		s := defaultEdgeBounds()
		change(&s)
		return s.check()
	}
	request := func(change func(*requestBounds)) error {
		s := defaultRequestBounds()
		change(&s)
		return s.check()
	}
	require.NoError(t, edge(func(*edgeBounds) {}))
	require.NoError(t, request(func(*requestBounds) {}))
	require.NoError(t, defaultLinks().check())
	require.NoError(t, defaultUnsent().check())
	links, windows, unsent := defaultLinks(), defaultLinks(), defaultUnsent()
	slow := defaultWindows()
	slow.LinkKeepAlive = time.Millisecond
	links.MaxLinks, windows.LinkControlWindow, unsent.LinkReceiveUnsent = 0, 2<<30, 0
	for name, err := range map[string]error{
		"max-connections":         edge(func(s *edgeBounds) { s.MaxConnections = 0 }),
		"max-connection-calls":    edge(func(s *edgeBounds) { s.MaxConnectionCalls = -1 }),
		"max-calls":               edge(func(s *edgeBounds) { s.MaxCalls = 0 }),
		"max-receives-group":      edge(func(s *edgeBounds) { s.MaxReceivesGroup = 0 }),
		"max-clients":             edge(func(s *edgeBounds) { s.MaxClients = 0 }),
		"max-header-bytes":        edge(func(s *edgeBounds) { s.MaxHeaderBytes = 100 }),
		"max-request-bytes":       edge(func(s *edgeBounds) { s.MaxRequestBytes = 2 << 30 }),
		"handshake-timeout":       edge(func(s *edgeBounds) { s.HandshakeTimeout = time.Millisecond }),
		"max-body-bytes":          request(func(s *requestBounds) { s.MaxBodyBytes = 17 << 20 }),
		"max-batch-bytes":         request(func(s *requestBounds) { s.MaxBatchBytes = 0 }),
		"max-properties":          request(func(s *requestBounds) { s.MaxProperties = 0 }),
		"max-property-bytes":      request(func(s *requestBounds) { s.MaxPropertyBytes = 2 << 20 }),
		"max-system-bytes":        request(func(s *requestBounds) { s.MaxSystemBytes = 10 }),
		"max-message-group-bytes": request(func(s *requestBounds) { s.MaxGroupBytes = 5000 }),
		"max-receive-batch":       request(func(s *requestBounds) { s.MaxReceiveBatch = 1025 }),
		"max-receive-bytes":       request(func(s *requestBounds) { s.MaxReceiveBytes = 64 << 20 }),
		"max-links":               links.check(),
		"max-peer-connections":    peerSettings{}.check(),
		"max-topics":              definitionSettings{MaxTopics: 1 << 30, MaxGroups: 1}.check(),
		"max-groups":              definitionSettings{MaxTopics: 1}.check(),
		"link-keepalive":          slow.check(),
		"link-control-window":     windows.check(),
		"link-receive-unsent":     unsent.check(),
	} {
		require.ErrorContains(t, err, "--"+name+" ")
	}
}

// TestBoundsArrive: each setting is where it counts, none is another's.
func TestBoundsArrive(t *testing.T) {
	var po proxy.Options
	edgeBounds{
		MaxConnections: 1, MaxConnectionCalls: 2, MaxCalls: 3, MaxReceives: 4, MaxReceivesGroup: 5, MaxClients: 6, MaxHeaderBytes: 7, MaxRequestBytes: 8, HandshakeTimeout: 9,
	}.apply(&po)
	windowSettings{LinkSendWindow: 1, LinkReceiveWindow: 2, LinkControlWindow: 3, LinkKeepAlive: 7}.apply(&po.Link)
	unsentSettings{LinkSendUnsent: 4, LinkReceiveUnsent: 5, LinkControlUnsent: 6}.apply(&po.Link)
	require.Equal(t, proxy.Options{
		Connections: 1, ConnectionCalls: 2, Calls: 3, Receives: 4, ReceivesPerGroup: 5, KnownClients: 6, HeaderBytes: 7, RequestBytes: 8, Handshake: 9,
		Link: link.Options{Window: [link.Classes]int64{1, 2, 3}, Waiting: [link.Classes]int64{4, 5, 6}, KeepAlive: 7},
	}, po)
	var l server.Limits
	requestBounds{
		MaxBodyBytes: 1, MaxBatchBytes: 2, MaxProperties: 3, MaxPropertyBytes: 4, MaxSystemBytes: 5, MaxGroupBytes: 6, MaxReceiveBatch: 7, MaxReceiveBytes: 8,
	}.apply(&l)
	require.Equal(t, server.Limits{
		BodyBytes: 1, BatchBytes: 2, Properties: 3, PropertyBytes: 4, SystemBytes: 5, GroupNameBytes: 6, ReceiveBatch: 7, ReceiveBytes: 8,
	}, l)
}
