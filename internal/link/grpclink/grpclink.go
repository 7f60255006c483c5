// Package grpclink carries a link over the stream of perigee.broker.v1.LinkService: the handshake that
// opens it, and its packets, which are handed to gRPC and taken from it without going through protobuf
// code.
package grpclink

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	brokerv1 "github.com/perigee-mq/perigee/api/perigee/broker/v1"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Version is the version of the link that this release speaks, and the only one.
const Version = 1

const (
	// messageMax is the largest gRPC message: a packet with its field head, or a hello.
	messageMax = link.PacketMax + 16<<10
	// windowBytes is the flow-control window of a connection and of its one stream.
	windowBytes = 4 << 20
	// socketBytes is the size of gRPC's buffers towards the socket.
	socketBytes = 64 << 10
)

// ServerOptions are what a gRPC server of LinkService needs. They come after those of internal/rpc.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()), grpc.MaxRecvMsgSize(messageMax),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes),
		grpc.ReadBufferSize(socketBytes), grpc.WriteBufferSize(socketBytes),
	}
}

// DialOptions are what a gRPC client of LinkService needs. They come after those of internal/rpc.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(messageMax)),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(socketBytes), grpc.WithWriteBufferSize(socketBytes),
		grpc.WithNoProxy(), // brokers are near; a proxy of the environment is for the world outside
	}
}

// Hello is what one side tells about itself when a link opens.
type Hello struct {
	Release string // for messages to people
	Cluster string // cluster id
	Name    string // a proxy's address; a broker's group and replica
	Shard   uint32 // broker only
	Epoch   uint64 // broker only: what it leads, 0 if none
}

func (h Hello) proto() *brokerv1.LinkHello {
	return &brokerv1.LinkHello{Version: Version, Release: h.Release, ClusterId: h.Cluster, Name: h.Name, Shard: h.Shard, Epoch: h.Epoch}
}

// check turns the peer's hello into ours, or tells why the two cannot talk.
func (h Hello) check(peer *brokerv1.LinkHello) (Hello, error) {
	p := Hello{Release: peer.GetRelease(), Cluster: peer.GetClusterId(), Name: peer.GetName(), Shard: peer.GetShard(), Epoch: peer.GetEpoch()}
	switch {
	case peer == nil:
		return p, mqerr.New(mqerr.Invalid, "the link does not begin with a hello")
	case peer.GetVersion() != Version:
		return p, mqerr.New(mqerr.Unsupported, "%s (release %s) speaks version %d of the link, %s (release %s) speaks version %d: run the same release on both",
			p.Name, p.Release, peer.GetVersion(), h.Name, h.Release, Version)
	case p.Cluster != h.Cluster:
		return p, mqerr.New(mqerr.Invalid, "%s belongs to cluster %q, %s to cluster %q: check the addresses", p.Name, p.Cluster, h.Name, h.Cluster)
	}
	return p, nil
}

// Open opens a link as a client. The stream lives until ctx ends or the transport is closed; a
// handshake that does not end is the caller's to bound, by ctx.
func Open(ctx context.Context, cc grpc.ClientConnInterface, own Hello) (link.Transport, Hello, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := brokerv1.NewLinkServiceClient(cc).Link(ctx)
	if err != nil {
		cancel()
		return nil, Hello{}, rpc.FromStatus(err)
	}
	peer, err := greet(stream, own)
	if err != nil {
		cancel()
		return nil, peer, err
	}
	return &clientStream{stream: stream, cancel: cancel, ended: make(chan struct{})}, peer, nil
}

func greet(stream grpc.BidiStreamingClient[brokerv1.LinkRequest, brokerv1.LinkResponse], own Hello) (Hello, error) {
	// A refused stream gives io.EOF here; Recv has the reason.
	if err := stream.Send(&brokerv1.LinkRequest{Hello: own.proto()}); err != nil && !errors.Is(err, io.EOF) {
		return Hello{}, rpc.FromStatus(err)
	}
	m, err := stream.Recv()
	if err != nil {
		return Hello{}, rpc.FromStatus(err)
	}
	return own.check(m.GetHello())
}

// clientStream is the client's transport.
type clientStream struct {
	stream grpc.ClientStream
	cancel context.CancelFunc
	in     inbound

	once  sync.Once
	err   error // why Recv ended
	ended chan struct{}
}

func (c *clientStream) Send(packet []byte) error {
	err := c.stream.SendMsg(&outbound{packet})
	if errors.Is(err, io.EOF) { // the stream has ended; only Recv tells why
		<-c.ended
		return c.err
	}
	return rpc.FromStatus(err)
}

func (c *clientStream) Recv() ([]byte, error) {
	if err := c.stream.RecvMsg(&c.in); err != nil {
		c.once.Do(func() {
			c.err = rpc.FromStatus(err)
			close(c.ended)
		})
		return nil, c.err
	}
	return c.in.frames, nil
}

func (c *clientStream) Close() error {
	c.cancel()
	return nil
}

// Accept greets a client on a stream that it has opened.
func Accept(stream grpc.BidiStreamingServer[brokerv1.LinkRequest, brokerv1.LinkResponse], own Hello) (Hello, error) {
	m, err := stream.Recv()
	if err != nil {
		return Hello{}, err
	}
	peer, err := own.check(m.GetHello())
	if err != nil {
		return peer, err
	}
	return peer, stream.Send(&brokerv1.LinkResponse{Hello: own.proto()})
}

// NewServerTransport is the server's transport over a stream that was accepted. Its Close does
// nothing: the stream ends when its handler returns, which it must do when the link is done.
func NewServerTransport(stream grpc.ServerStream) link.Transport {
	return &serverStream{stream: stream}
}

type serverStream struct {
	stream grpc.ServerStream
	in     inbound
}

func (s *serverStream) Send(packet []byte) error { return s.stream.SendMsg(&outbound{packet}) }

func (s *serverStream) Recv() ([]byte, error) {
	if err := s.stream.RecvMsg(&s.in); err != nil {
		return nil, err
	}
	return s.in.frames, nil
}

func (s *serverStream) Close() error { return nil }
