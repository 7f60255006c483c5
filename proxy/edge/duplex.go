package edge

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/perigee-mq/perigee/proxy/call"
)

// duplex is a call.Duplex. Its handler has a goroutine of its own, so that the server can end the
// call while the handler waits for a message.
type duplex struct {
	info
	ss grpc.ServerStream
	in frame // of the last Recv; the handler's goroutine only

	mu    sync.Mutex // serialises sending
	out   frame
	ended bool
}

// SendHeaders sends the response headers now.
func (d *duplex) SendHeaders() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return io.ErrClosedPipe
	}
	return d.ss.SendHeader(metadata.MD{})
}

// Recv returns the next message.
func (d *duplex) Recv() ([]byte, error) {
	if err := d.ss.RecvMsg(&d.in); err != nil {
		d.in.free()
		return nil, err
	}
	return d.in.data, nil
}

// Send hands one message to the transport.
func (d *duplex) Send(msg []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return io.ErrClosedPipe
	}
	d.out.data = msg
	return d.ss.SendMsg(&d.out)
}

func (d *duplex) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
}

// duplexHandler runs f on a goroutine of its own and ends the call when f returns or the server
// drains. The end makes f's Recv fail.
func (s *Server) duplexHandler(name string, f func(call.Duplex) error) grpc.StreamHandler {
	if f == nil {
		return unimplemented(name)
	}
	return func(_ any, ss grpc.ServerStream) error {
		d := &duplex{info: info{ctx: ss.Context()}, ss: ss}
		defer d.end()
		result := make(chan error, 1)
		s.duplexes.Go(func() {
			defer func() { d.in.free() }()
			var failed error
			crashed := s.run(d.ctx, name, func() { failed = f(d) })
			if crashed != nil {
				failed = crashed
			}
			result <- failed
		})
		select {
		case err := <-result:
			d.trail(ss)
			return publicError(err)
		case <-s.draining:
			if len(s.o.Goodbye) > 0 {
				_ = d.Send(s.o.Goodbye) // a client that does not read is cut off at the end of the drain
			}
			return nil
		}
	}
}

// publicError turns a handler's error into a gRPC status.
func publicError(err error) error {
	if f, ok := errors.AsType[*call.Failure](err); ok {
		return status.Error(codes.Code(f.Code), f.Text)
	}
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
