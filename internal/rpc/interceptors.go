package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// MessageBytesMax is the largest message of the internal services: a snapshot of all definitions is
// one message.
const MessageBytesMax = 64 << 20

// handshakeMax is how long a connection may take until it speaks HTTP/2.
const handshakeMax = 10 * time.Second

// ServerOptions returns the options that every internal gRPC server has: errors go out by the table,
// a panic of a handler is an Internal error, and Internal errors are logged.
func ServerOptions(log *slog.Logger) []grpc.ServerOption {
	unary := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
		defer func() { err = finish(ctx, log, info.FullMethod, recover(), err) }()
		return next(ctx, req)
	}
	stream := func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
		defer func() { err = finish(ss.Context(), log, info.FullMethod, recover(), err) }()
		return next(srv, ss)
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream), grpc.MaxRecvMsgSize(MessageBytesMax),
		grpc.ConnectionTimeout(handshakeMax),
	}
}

// finish makes the status of a handler that ended with err or panicked with p.
func finish(ctx context.Context, log *slog.Logger, method string, p any, err error) error {
	if p != nil {
		err = mqerr.New(mqerr.Internal, "panic: %v\n%s", p, debug.Stack())
	}
	st := ToStatus(err)
	if err != nil && mqerr.Is(FromStatus(st), mqerr.Internal) {
		log.LogAttrs(ctx, slog.LevelError, "call failed by a fault inside, its caller was told so; report this line", slog.String("method", method), slog.String("error", fmt.Sprint(err)))
	}
	return st
}

// DialOptions returns the options that every client of the internal services has: statuses come back
// as *mqerr.Error, and large snapshots are accepted. A stream's regular end stays io.EOF.
func DialOptions() []grpc.DialOption {
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return FromStatus(next(ctx, method, req, reply, cc, opts...))
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := next(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, FromStatus(err)
		}
		return clientStream{s}, nil
	}
	return []grpc.DialOption{
		grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MessageBytesMax)),
	}
}

type clientStream struct{ grpc.ClientStream }

// RecvMsg maps what ends the stream. SendMsg needs no map: it answers io.EOF and RecvMsg has the cause.
func (s clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		return err
	}
	return FromStatus(err)
}
