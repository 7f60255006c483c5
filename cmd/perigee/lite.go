package main

import (
	"time"

	"github.com/perigee-mq/perigee/broker/engine"
)

// liteSettings are the settings of lite topics, of processes with a broker in them.
type liteSettings struct {
	LiteTopics    int           `koanf:"lite-topics" help:"lite topics of one parent topic on this broker, at most; messages that would make more are refused"`
	LiteClientMax int           `koanf:"lite-client-topics" help:"lite topics of this broker that one client subscribes to, at most (and 300 more while it changes them)"`
	LiteExpiry    time.Duration `koanf:"lite-expiry" help:"how long after its last message a lite topic goes when nothing in it is left to do; after twice that it goes in any case; at least 15m; a topic may have its own"`
}

func defaultLite() liteSettings {
	return liteSettings{LiteTopics: 100_000, LiteClientMax: 2000, LiteExpiry: 72 * time.Hour}
}

func (s liteSettings) check() error {
	switch {
	case s.LiteTopics < 1, s.LiteClientMax < 1:
		return usageError("--lite-topics and --lite-client-topics must be at least 1")
	case s.LiteExpiry < 15*time.Minute:
		return usageError("--lite-expiry %v: use 15m or more", s.LiteExpiry)
	}
	return nil
}

func (s liteSettings) apply(o *engine.Options) {
	o.LiteTopics, o.LiteSubscriptions, o.LiteExpiry = s.LiteTopics, s.LiteClientMax, s.LiteExpiry
}

// liteEdgeSettings are the settings of lite topics, of processes with a proxy in them.
type liteEdgeSettings struct {
	LiteQuota    int `koanf:"lite-subscriptions" help:"lite topics that one client may subscribe to, as clients are told"`
	LiteNameSize int `koanf:"lite-name-size" help:"characters of the name of a lite topic, at most, 1 to 255"`
}

func defaultLiteEdge() liteEdgeSettings { return liteEdgeSettings{LiteQuota: 2000, LiteNameSize: 64} }

func (s liteEdgeSettings) check() error {
	if s.LiteQuota < 1 || s.LiteQuota > 1<<30 || s.LiteNameSize < 1 || s.LiteNameSize > 255 {
		return usageError("--lite-subscriptions must be at least 1, --lite-name-size 1 to 255")
	}
	return nil
}
