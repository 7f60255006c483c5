package edge

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/perigee-mq/perigee/proxy/wire"
)

// Call is what became of a call of the messaging service.
type Call struct {
	// Code is the last public code that was answered, 0 if there was none. It is what clients look at when
	// GRPC is OK.
	Code int32
	GRPC codes.Code
	Took time.Duration
}

// Meter is told of every call of one method when it begins, and what became of it when it is over.
type Meter interface {
	Begin()
	End(c Call)
}

// metered is a call's stream that notes the public code of what is sent.
type metered struct {
	grpc.ServerStream
	code atomic.Int32 // a call that is cut off may end while somebody sends
}

// SendMsg sends m.
func (m *metered) SendMsg(msg any) error {
	if f, ok := msg.(*frame); ok {
		if code, ok := wire.StatusCode(f.data); ok {
			m.code.Store(code)
		}
	}
	return m.ServerStream.SendMsg(msg)
}

// metered measures a method's calls.
func (s *Server) metered(name string, h grpc.StreamHandler) grpc.StreamHandler {
	if s.o.Meter == nil {
		return h
	}
	meter := s.o.Meter(name)
	return func(srv any, ss grpc.ServerStream) error {
		began, m := time.Now(), &metered{ServerStream: ss}
		meter.Begin()
		err := h(srv, m)
		meter.End(Call{Code: m.code.Load(), GRPC: status.Code(err), Took: time.Since(began)})
		return err
	}
}
