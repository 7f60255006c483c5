package main

import (
	"time"

	"github.com/perigee-mq/perigee/internal/cfg"
	"github.com/perigee-mq/perigee/proxy"
)

// edgeBounds are the settings that bound what is open at a proxy.
type edgeBounds struct {
	MaxConnections     int           `koanf:"max-connections" help:"connections of clients that may be open; more are closed at once"`
	MaxConnectionCalls int           `koanf:"max-connection-calls" help:"calls that may be open on one connection of a client; more wait in the client's library"`
	MaxCalls           int           `koanf:"max-calls" help:"calls of clients that may be open on all connections; more are refused"`
	MaxReceives        int           `koanf:"max-receives" help:"receives that may wait for messages; more are refused"`
	MaxReceivesGroup   int           `koanf:"max-receives-group" help:"receives of one group that may wait on one topic; more are refused"`
	MaxClients         int           `koanf:"max-clients" help:"clients that are remembered with their settings; beyond it one that was silent for long makes room"`
	MaxHeaderBytes     cfg.Bytes     `koanf:"max-header-bytes" help:"headers of a call, counted as HTTP/2 does; more are refused by the transport"`
	MaxRequestBytes    cfg.Bytes     `koanf:"max-request-bytes" help:"one request of a client, counted before it is looked at; more are refused by the transport"`
	HandshakeTimeout   time.Duration `koanf:"handshake-timeout" help:"how long a new connection may take until it speaks HTTP/2, TLS included; then it is closed"`
}

func defaultEdgeBounds() edgeBounds {
	return edgeBounds{
		MaxConnections: 20_000, MaxConnectionCalls: 10_000, MaxCalls: 200_000, MaxReceives: 100_000, MaxReceivesGroup: 8192, MaxClients: 100_000,
		MaxHeaderBytes: 16 << 10, MaxRequestBytes: 130 << 20, HandshakeTimeout: 10 * time.Second,
	}
}

func (s edgeBounds) check() error {
	const most = 1<<31 - 1
	for name, n := range map[string]int{
		"max-connections": s.MaxConnections, "max-connection-calls": s.MaxConnectionCalls, "max-calls": s.MaxCalls,
		"max-receives": s.MaxReceives, "max-receives-group": s.MaxReceivesGroup, "max-clients": s.MaxClients,
	} {
		if n < 1 || n > most {
			return usageError("--%s %d: use 1 to %d", name, n, most)
		}
	}
	switch {
	case s.MaxHeaderBytes < 4<<10 || s.MaxHeaderBytes > 1<<20:
		return usageError("--max-header-bytes %s: use 4KiB to 1MiB", s.MaxHeaderBytes.String())
	case s.MaxRequestBytes < 1<<20 || s.MaxRequestBytes > 1<<30:
		return usageError("--max-request-bytes %s: use 1MiB to 1GiB", s.MaxRequestBytes.String())
	case s.HandshakeTimeout < time.Second:
		return usageError("--handshake-timeout %v: use 1s or more", s.HandshakeTimeout)
	}
	return nil
}

func (s edgeBounds) apply(o *proxy.Options) {
	o.Connections, o.ConnectionCalls, o.Calls = s.MaxConnections, s.MaxConnectionCalls, s.MaxCalls
	o.Receives, o.ReceivesPerGroup, o.KnownClients = s.MaxReceives, s.MaxReceivesGroup, s.MaxClients
	o.HeaderBytes, o.RequestBytes, o.Handshake = int(s.MaxHeaderBytes), int(s.MaxRequestBytes), s.HandshakeTimeout
}
