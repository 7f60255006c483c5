// Package call is what a transport and a handler of the public messaging service share: request
// bytes in, reply bytes out, completion from any goroutine.
//
// Handlers are written against these interfaces and know no transport. The first transport is
// grpc-go with a raw codec (proxy/edge); another one may come without a change in the handlers.
package call

import (
	"context"
	"time"
)

// Code is a gRPC status code; the numbers are those of the protocol.
type Code uint32

// The gRPC codes that handlers use themselves. Failures of the service are answers with a public
// Status inside, at gRPC code OK.
const (
	OK                Code = 0
	Cancelled         Code = 1
	Unknown           Code = 2
	InvalidArgument   Code = 3
	ResourceExhausted Code = 8
	Internal          Code = 13
	Unimplemented     Code = 12
	Unavailable       Code = 14
)

// Info is what a transport knows about a request.
type Info interface {
	// Context ends when the caller gave up, its deadline passed or the server stops.
	Context() context.Context
	// Deadline is the caller's deadline; false if there is none.
	Deadline() (time.Time, bool)
	// Header is the first value of a request header (lower-case name), "" if it is missing.
	Header(name string) string
	// Peer is the caller's address, host:port.
	Peer() string
	// Local is the address at which the caller was accepted, host:port.
	Local() string
	// RetryAfter asks the caller to come again after a pause, in the trailer retry-after-ms. It counts
	// if it comes before the completion.
	RetryAfter(pause time.Duration)
}

// Unary is a call with one request and one reply. Exactly one of Reply and Fail completes it, from
// any goroutine; completing it a second time does nothing.
type Unary interface {
	Info
	// Request is the encoded request, valid until the call is completed.
	Request() []byte
	// Reply completes the call. The transport owns msg afterwards.
	Reply(msg []byte)
	// Fail completes the call with a gRPC error.
	Fail(code Code, text string)
}

// Stream is a call with one request and many replies. Exactly one of End and Fail completes it.
type Stream interface {
	Info
	Request() []byte
	// Send hands one message to the transport, which owns it afterwards. It may wait for a slow
	// reader, so it must not be called on a goroutine that others wait for. Nil means that the
	// transport took the message and the stream was still alive. One call at a time.
	Send(msg []byte) error
	End()
	Fail(code Code, text string)
}

// Duplex is a call with messages in both directions. The handler runs on a goroutine of its own and
// completes the call by returning: nil ends it normally, a *Failure with its code.
type Duplex interface {
	Info
	// SendHeaders sends the response headers now, without a message.
	SendHeaders() error
	// Recv returns the next message; io.EOF when the caller has closed its side. The bytes are valid
	// until the next Recv.
	Recv() ([]byte, error)
	// Send is safe for concurrent use.
	Send(msg []byte) error
}

// Failure is an error with a gRPC code.
type Failure struct {
	Code Code
	Text string
}

// Error returns the text.
func (f *Failure) Error() string { return f.Text }
