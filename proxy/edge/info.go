package edge

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// info is call.Info over a grpc-go stream.
type info struct {
	ctx   context.Context
	pause atomic.Int64 // that the caller is asked for, ms; 0: none
}

// trailerRetry tells a caller that was refused when to come again.
const trailerRetry = "retry-after-ms"

// RetryAfter asks for a pause.
func (i *info) RetryAfter(pause time.Duration) { i.pause.Store(pause.Milliseconds()) }

// trail sets the trailers of a call that is about to end.
func (i *info) trail(ss grpc.ServerStream) {
	if ms := i.pause.Load(); ms > 0 {
		ss.SetTrailer(metadata.Pairs(trailerRetry, strconv.FormatInt(ms, 10)))
	}
}

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
