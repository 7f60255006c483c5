package main

import (
	"time"

	"github.com/perigee-mq/perigee/internal/cfg"
	"github.com/perigee-mq/perigee/internal/link"
)

// windowSettings bound what a process takes of the links between proxies and brokers before it has dealt with it.
type windowSettings struct {
	LinkSendWindow    cfg.Bytes     `koanf:"link-send-window" help:"messages to store, or answers to them, that this process takes on one link before it has dealt with some; the other side waits"`
	LinkReceiveWindow cfg.Bytes     `koanf:"link-receive-window" help:"receives, or messages that answer them, that this process takes on one link before it has dealt with some; the other side waits"`
	LinkControlWindow cfg.Bytes     `koanf:"link-control-window" help:"other requests, or their answers, that this process takes on one link before it has dealt with some; the other side waits"`
	LinkKeepAlive     time.Duration `koanf:"link-keepalive" help:"how long nothing may come over a link before the other side is asked for a sign of life; after as long again without one the link ends, and what was under way on it is answered"`
}

func defaultWindows() windowSettings {
	return windowSettings{LinkKeepAlive: 2 * time.Second, LinkSendWindow: 32 << 20, LinkReceiveWindow: 64 << 20, LinkControlWindow: 8 << 20}
}

// Bounds of the bounds of a link.
const (
	linkBytesLeast = 64 << 10
	linkBytesMost  = 1 << 30
	keepAliveLeast = 100 * time.Millisecond
	keepAliveMost  = time.Minute
)

func checkLink(bounds map[string]cfg.Bytes) error {
	for name, n := range bounds {
		if n < linkBytesLeast || n > linkBytesMost {
			return usageError("--%s %s: use 64KiB to 1GiB", name, n.String())
		}
	}
	return nil
}

func (s windowSettings) check() error {
	if s.LinkKeepAlive < keepAliveLeast || s.LinkKeepAlive > keepAliveMost {
		return usageError("--link-keepalive %v: use %v to %v, the same for brokers and proxies", s.LinkKeepAlive, keepAliveLeast, keepAliveMost)
	}
	return checkLink(map[string]cfg.Bytes{
		"link-send-window": s.LinkSendWindow, "link-receive-window": s.LinkReceiveWindow, "link-control-window": s.LinkControlWindow,
	})
}

func (s windowSettings) apply(o *link.Options) {
	o.KeepAlive = s.LinkKeepAlive
	o.Window = [link.Classes]int64{link.Send: int64(s.LinkSendWindow), link.Pop: int64(s.LinkReceiveWindow), link.Control: int64(s.LinkControlWindow)}
}

// unsentSettings bound what a proxy holds for a broker that does not take it.
type unsentSettings struct {
	LinkSendUnsent    cfg.Bytes `koanf:"link-send-unsent" help:"messages to store that may wait for one broker's link; more are refused"`
	LinkReceiveUnsent cfg.Bytes `koanf:"link-receive-unsent" help:"receives that may wait for one broker's link; more are refused"`
	LinkControlUnsent cfg.Bytes `koanf:"link-control-unsent" help:"other requests that may wait for one broker's link; more are refused"`
}

func defaultUnsent() unsentSettings {
	return unsentSettings{LinkSendUnsent: 32 << 20, LinkReceiveUnsent: 8 << 20, LinkControlUnsent: 8 << 20}
}

func (s unsentSettings) check() error {
	return checkLink(map[string]cfg.Bytes{
		"link-send-unsent": s.LinkSendUnsent, "link-receive-unsent": s.LinkReceiveUnsent, "link-control-unsent": s.LinkControlUnsent,
	})
}

func (s unsentSettings) apply(o *link.Options) {
	o.Waiting = [link.Classes]int64{link.Send: int64(s.LinkSendUnsent), link.Pop: int64(s.LinkReceiveUnsent), link.Control: int64(s.LinkControlUnsent)}
}

// linksSettings are those of a broker, which has many links.
type linksSettings struct {
	windowSettings `koanf:",squash"`
	peerSettings   `koanf:",squash"`
	MaxLinks       int `koanf:"max-links" help:"links of proxies that may be open at this broker; more are refused"`
}

func defaultLinks() linksSettings {
	return linksSettings{windowSettings: defaultWindows(), peerSettings: defaultPeers(), MaxLinks: 1024}
}

func (s linksSettings) check() error {
	if s.MaxLinks < 1 {
		return usageError("--max-links %d: use 1 or more", s.MaxLinks)
	}
	if err := s.peerSettings.check(); err != nil {
		return err
	}
	return s.windowSettings.check()
}
