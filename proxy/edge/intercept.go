package edge

import (
	"context"
	"log/slog"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/selector"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// interceptors are for the services other than messaging. Unary messaging calls never meet them,
// streaming ones are passed by with one comparison.
func (s *Server) interceptors() []grpc.ServerOption {
	recovered := recovery.WithRecoveryHandlerContext(func(ctx context.Context, reason any) error {
		method, _ := grpc.Method(ctx)
		return s.crashed(ctx, method, reason)
	})
	logger := logging.LoggerFunc(func(ctx context.Context, level logging.Level, msg string, fields ...any) {
		s.o.Log.Log(ctx, slog.Level(level), "call", append([]any{"event", msg}, fields...)...)
	})
	// A finished call is an operator's own action or a probe: at Debug unless it failed.
	options := []logging.Option{logging.WithLogOnEvents(logging.FinishCall), logging.WithLevels(logLevel)}
	others := selector.MatchFunc(func(_ context.Context, c interceptors.CallMeta) bool { return c.Service != serviceName })
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(
			logging.UnaryServerInterceptor(logger, options...),
			auth.UnaryServerInterceptor(s.authenticate),
			recovery.UnaryServerInterceptor(recovered),
		),
		grpc.ChainStreamInterceptor(
			selector.StreamServerInterceptor(logging.StreamServerInterceptor(logger, options...), others),
			selector.StreamServerInterceptor(auth.StreamServerInterceptor(s.authenticate), others),
			selector.StreamServerInterceptor(recovery.StreamServerInterceptor(recovered), others),
		),
	}
}

// logLevel keeps quiet about calls that went well or that failed for a reason of the caller's.
func logLevel(code codes.Code) logging.Level {
	switch code {
	case codes.OK, codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.DeadlineExceeded, codes.Unimplemented:
		return logging.LevelDebug
	}
	return logging.DefaultServerCodeToLevel(code)
}

func (s *Server) authenticate(ctx context.Context) (context.Context, error) {
	if s.o.Auth == nil {
		return ctx, nil
	}
	method, _ := grpc.Method(ctx)
	return s.o.Auth(ctx, method)
}
