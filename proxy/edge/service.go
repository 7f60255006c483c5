package edge

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
)

// Service holds the handlers of the messaging service. A nil one answers UNIMPLEMENTED. Handlers of
// unary and streaming calls may return before they complete the call.
type Service struct {
	QueryRoute                      func(call.Unary)
	Heartbeat                       func(call.Unary)
	SendMessage                     func(call.Unary)
	QueryAssignment                 func(call.Unary)
	ReceiveMessage                  func(call.Stream)
	AckMessage                      func(call.Unary)
	ForwardMessageToDeadLetterQueue func(call.Unary)
	PullMessage                     func(call.Stream)
	UpdateOffset                    func(call.Unary)
	GetOffset                       func(call.Unary)
	QueryOffset                     func(call.Unary)
	EndTransaction                  func(call.Unary)
	Telemetry                       func(call.Duplex) error
	NotifyClientTermination         func(call.Unary)
	ChangeInvisibleDuration         func(call.Unary)
	RecallMessage                   func(call.Unary)
	SyncLiteSubscription            func(call.Unary) // a client's calls come one after another, in order
}

const serviceName = "apache.rocketmq.v2.MessagingService"

// describe makes grpc-go's description of the service. Unary calls are described as streams without
// streaming in either direction, which is what grpc-go itself turns them into: so the handler sees
// the end of a call and can use its memory again.
func (s *Server) describe(h Service) *grpc.ServiceDesc {
	d := &grpc.ServiceDesc{ServiceName: serviceName, Metadata: rmqv2.File_apache_rocketmq_v2_service_proto.Path()}
	for name, f := range map[string]func(call.Unary){
		"QueryRoute": h.QueryRoute, "Heartbeat": h.Heartbeat, "SendMessage": h.SendMessage,
		"QueryAssignment": h.QueryAssignment, "AckMessage": h.AckMessage,
		"ForwardMessageToDeadLetterQueue": h.ForwardMessageToDeadLetterQueue, "UpdateOffset": h.UpdateOffset,
		"GetOffset": h.GetOffset, "QueryOffset": h.QueryOffset, "EndTransaction": h.EndTransaction,
		"NotifyClientTermination": h.NotifyClientTermination, "ChangeInvisibleDuration": h.ChangeInvisibleDuration,
		"RecallMessage": h.RecallMessage, "SyncLiteSubscription": h.SyncLiteSubscription,
	} {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: name, Handler: s.metered(name, s.counting(name, s.unaryHandler(name, f)))})
	}
	for name, f := range map[string]func(call.Stream){"ReceiveMessage": h.ReceiveMessage, "PullMessage": h.PullMessage} {
		d.Streams = append(d.Streams, grpc.StreamDesc{StreamName: name, Handler: s.metered(name, s.counting(name, s.streamHandler(name, f))), ServerStreams: true})
	}
	d.Streams = append(d.Streams, grpc.StreamDesc{
		StreamName: "Telemetry", Handler: s.metered("Telemetry", s.counting("Telemetry", s.duplexHandler("Telemetry", h.Telemetry))), ServerStreams: true, ClientStreams: true,
	})
	return d
}

// unimplemented is the handler of a method that this release does not serve.
func unimplemented(name string) grpc.StreamHandler {
	return func(any, grpc.ServerStream) error {
		return status.Errorf(codes.Unimplemented, "%s is not served by this release of Perigee", name)
	}
}

// crashed logs a panic of a handler and returns what the caller is told.
func (s *Server) crashed(ctx context.Context, method string, reason any) error {
	s.o.Log.LogAttrs(ctx, slog.LevelError, "handler panicked: a bug; its caller was told of an internal error, other calls go on; report this line with its stack",
		slog.String("method", method), slog.String("panic", fmt.Sprint(reason)), slog.String("stack", string(debug.Stack())))
	return status.Error(codes.Internal, "internal error: the proxy's log tells more")
}
