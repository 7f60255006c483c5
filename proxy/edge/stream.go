package edge

import (
	"io"

	"google.golang.org/grpc"

	"github.com/perigee-mq/perigee/proxy/call"
)

// stream is a call.Stream.
type stream struct {
	info
	end
	ss      grpc.ServerStream
	in, out frame
}

// Request is the encoded request.
func (s *stream) Request() []byte { return s.in.data }

// Send hands one message to the transport and waits while the reader is slow.
func (s *stream) Send(msg []byte) error {
	if s.taken.Load() {
		return io.ErrClosedPipe
	}
	s.out.data = msg
	if err := s.ss.SendMsg(&s.out); err != nil {
		return err
	}
	return s.ctx.Err() // taken, but for nobody
}

// End completes the call.
func (s *stream) End() { s.Fail(call.OK, "") }

// Fail completes the call with a gRPC error.
func (s *stream) Fail(code call.Code, text string) {
	if s.claim() {
		s.finish(code, text)
	}
}

// streamHandler runs f on grpc-go's goroutine, which then waits for the completion.
func (s *Server) streamHandler(name string, f func(call.Stream)) grpc.StreamHandler {
	if f == nil {
		return unimplemented(name)
	}
	return func(_ any, ss grpc.ServerStream) error {
		c := &stream{info: info{ctx: ss.Context()}, ss: ss}
		if err := ss.RecvMsg(&c.in); err != nil {
			c.in.free()
			return err
		}
		c.init()
		if err := s.run(c.ctx, name, func() { f(c) }); err != nil {
			c.claim() // no Send after this
			return err
		}
		if !c.wait(s.forced) {
			c.claim()
			return errForced
		}
		c.in.free()
		c.trail(ss)
		return c.err()
	}
}
