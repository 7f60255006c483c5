package main

import "github.com/perigee-mq/perigee/proxy"

// edgeBounds are the settings that bound what is open at a proxy.
type edgeBounds struct {
	MaxConnections   int `koanf:"max-connections" help:"connections of clients that may be open; more are closed at once"`
	MaxCalls         int `koanf:"max-calls" help:"calls of clients that may be open on all connections; more are refused"`
	MaxReceives      int `koanf:"max-receives" help:"receives that may wait for messages; more are refused"`
	MaxReceivesGroup int `koanf:"max-receives-group" help:"receives of one group that may wait on one topic; more are refused"`
}

func defaultEdgeBounds() edgeBounds {
	return edgeBounds{MaxConnections: 20_000, MaxCalls: 200_000, MaxReceives: 100_000, MaxReceivesGroup: 8192}
}

func (s edgeBounds) check() error {
	if min(s.MaxConnections, s.MaxCalls, s.MaxReceives, s.MaxReceivesGroup) < 1 {
		return usageError("--max-connections, --max-calls, --max-receives and --max-receives-group must be at least 1")
	}
	return nil
}

func (s edgeBounds) apply(o *proxy.Options) {
	o.Connections, o.Calls, o.Receives, o.ReceivesPerGroup = s.MaxConnections, s.MaxCalls, s.MaxReceives, s.MaxReceivesGroup
}
