package edge

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/perigee-mq/perigee/proxy/call"
)

// end is the completion of a call: the first of its completers wins, one goroutine waits.
type end struct {
	taken  atomic.Bool
	signal chan struct{} // gets one token from the winner
	code   call.Code     // written by the winner before the token
	text   string
}

// signals are used again once their token was taken.
var signals = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

func (e *end) init() { e.signal, _ = signals.Get().(chan struct{}) }

// claim reports whether the caller is the one that completes the call.
func (e *end) claim() bool { return e.taken.CompareAndSwap(false, true) }

func (e *end) finish(code call.Code, text string) {
	e.code, e.text = code, text
	e.signal <- struct{}{}
}

// wait returns when the call is completed, false if the server is cutting calls off.
func (e *end) wait(forced <-chan struct{}) bool {
	select {
	case <-e.signal:
		signals.Put(e.signal)
		return true
	case <-forced:
		return false
	}
}

func (e *end) err() error {
	if e.code == call.OK {
		return nil
	}
	return status.Error(codes.Code(e.code), e.text)
}

var errForced = status.Error(codes.Unavailable, "the server is shutting down")

// unary is a call.Unary. It is never used for a second call: a handler that completes a call twice
// must not reach another one.
type unary struct {
	info
	end
	in, out frame
}

// Request is the encoded request.
func (u *unary) Request() []byte { return u.in.data }

// Reply completes the call.
func (u *unary) Reply(msg []byte) {
	if u.claim() {
		u.out.data = msg
		u.finish(call.OK, "")
	}
}

// Fail completes the call with a gRPC error.
func (u *unary) Fail(code call.Code, text string) {
	if u.claim() {
		u.finish(code, text)
	}
}

// unaryHandler runs f on grpc-go's goroutine, which then waits for the completion.
func (s *Server) unaryHandler(name string, f func(call.Unary)) grpc.StreamHandler {
	if f == nil {
		return unimplemented(name)
	}
	return func(_ any, ss grpc.ServerStream) error {
		u := &unary{info: info{ctx: ss.Context()}}
		if err := ss.RecvMsg(&u.in); err != nil {
			u.in.free()
			return err
		}
		if err := s.await(u.ctx); err != nil {
			u.in.free()
			return err
		}
		u.init()
		if err := s.run(u.ctx, name, func() { f(u) }); err != nil {
			return err // the request may be in use somewhere: it is left to the garbage collector
		}
		if !u.wait(s.forced) {
			return errForced
		}
		u.in.free()
		u.trail(ss)
		if err := u.err(); err != nil {
			return err
		}
		return ss.SendMsg(&u.out)
	}
}

// run calls f and turns a panic into an error.
func (s *Server) run(ctx context.Context, name string, f func()) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = s.crashed(ctx, name, reason)
		}
	}()
	f()
	return nil
}
