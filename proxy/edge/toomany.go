package edge

import (
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// A call beyond the bound gets a normal answer with the public code: official clients go by their backoff for that
// one only, and try again at once, or elsewhere, when the call itself fails. Telemetry has no such answer and fails.

// callsPause is the pause that a caller is asked for who is refused.
const callsPause = time.Second

var (
	tooManyCalls    = fmt.Sprintf("this proxy has as many open calls as it takes (retry after %d ms)", callsPause.Milliseconds())
	errTooManyCalls = status.Error(codes.ResourceExhausted, tooManyCalls)
	callsTrailer    = metadata.Pairs(trailerRetry, fmt.Sprint(callsPause.Milliseconds()))
)

// heldShare is the part of the bound that may take their pause here before they are refused.
const heldShare = 16

// counting lets a handler run if not too many calls are open.
func (s *Server) counting(name string, h grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, ss grpc.ServerStream) error {
		defer s.load.calls.Add(-1)
		if s.load.calls.Add(1) <= int64(s.o.Calls) {
			return h(srv, ss)
		}
		s.load.callsRefused.Add(1)
		ss.SetTrailer(callsTrailer)
		switch name {
		case "Telemetry":
			return errTooManyCalls
		case "ReceiveMessage":
			s.hold(ss)
		}
		return ss.SendMsg(&frame{data: wire.AppendStatus(nil, int32(rmqv2.Code_TOO_MANY_REQUESTS), tooManyCalls)})
	}
}

// hold lets a refused receive take its pause here, since Java, Node.js, C++ and C# ask again 20 ms after the
// answer. Those that pause are bounded, too: beyond that the answer comes at once.
func (s *Server) hold(ss grpc.ServerStream) {
	defer s.load.held.Add(-1)
	if s.load.held.Add(1) > int64(max(1, s.o.Calls/heldShare)) {
		return
	}
	pause := time.NewTimer(callsPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ss.Context().Done():
	case <-s.draining:
	}
}
