package server

import (
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
)

// errStarting is the answer while nothing is known of topics, groups and handles: that they do not exist
// would be final for clients, which then give up what they have.
var errStarting = mqerr.New(mqerr.Unavailable, "the proxy has no routes yet: it waits for the controller")

// starting reports whether the proxy has no routes yet.
func (s *Server) starting() bool {
	if s.o.Routed == nil {
		return false
	}
	select {
	case <-s.o.Routed:
		return false
	default:
		return true
	}
}

// Unary is a handler that refuses calls until there are routes.
func (s *Server) Unary(rpc RPC, f func(call.Unary)) func(call.Unary) {
	return func(c call.Unary) {
		if s.starting() {
			reject(c, s.outcome(rpc, errStarting))
			return
		}
		f(c)
	}
}

// Stream is Unary for calls with many replies.
func (s *Server) Stream(rpc RPC, f func(call.Stream)) func(call.Stream) {
	return func(c call.Stream) {
		if !s.starting() {
			f(c)
			return
		}
		time.AfterFunc(errorDelay, func() { // clients ask again at once
			no := s.outcome(rpc, errStarting)
			no.hint(c)
			_ = c.Send(statusReply(no))
			c.End()
		})
	}
}

// Duplex is Unary for calls in both directions.
func (s *Server) Duplex(f func(call.Duplex) error) func(call.Duplex) error {
	return func(c call.Duplex) error {
		if s.starting() {
			return &call.Failure{Code: call.Unavailable, Text: errStarting.Error()}
		}
		return f(c)
	}
}
