package edge

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// info is call.Info over the context of a grpc-go stream.
type info struct{ ctx context.Context }

// Context ends when the caller gave up, its deadline passed or the server stops.
func (i *info) Context() context.Context { return i.ctx }

// Deadline is the caller's deadline.
func (i *info) Deadline() (time.Time, bool) { return i.ctx.Deadline() }

// Header is the first value of a request header.
func (i *info) Header(name string) string {
	if v := metadata.ValueFromIncomingContext(i.ctx, name); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Peer is the caller's address.
func (i *info) Peer() string {
	if p, ok := peer.FromContext(i.ctx); ok {
		return text(p.Addr)
	}
	return ""
}

// Local is the address at which the caller was accepted.
func (i *info) Local() string {
	if p, ok := peer.FromContext(i.ctx); ok {
		return text(p.LocalAddr)
	}
	return ""
}

func text(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}
