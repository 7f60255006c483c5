package repl

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	replicationv1 "github.com/perigee-mq/perigee/api/perigee/replication/v1"
	"github.com/perigee-mq/perigee/broker/repl/follower"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// heard is what a stream has heard: a message, or why there are no more.
type heard struct {
	from    *stream
	message *incoming
	err     error
}

func (h *heard) free() {
	if h.message != nil {
		h.message.free()
	}
}

// stream is a follower's end of one stream. One goroutine opens it and reads, one writes.
type stream struct {
	f      *Follower
	cancel context.CancelFunc
	heard  atomic.Bool   // since it was looked
	wake   chan struct{} // there is something to say
	gone   chan struct{} // closed: the follower listens no more

	mu   sync.Mutex // guards what is to be said, in this order
	said *replicationv1.ReplicateRequest
	acks follower.Ack
	acked,
	left bool
	bye farewell
}

// open begins a stream with a hello.
func (f *Follower) open(ctx context.Context, address string, hello *replicationv1.ReplicateRequest) *stream {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it ends by leave, after a word to the master
	s := &stream{f: f, cancel: cancel, wake: make(chan struct{}, 1), gone: make(chan struct{}), said: hello}
	s.heard.Store(true)
	f.work.Go(func() {
		defer cancel()
		s.tell(heard{from: s, err: s.run(ctx, address)})
	})
	return s
}

// say sends a hello.
func (s *stream) say(m *replicationv1.ReplicateRequest) {
	s.mu.Lock()
	s.said = m
	s.mu.Unlock()
	ring(s.wake)
}

// ack sends an ack, or the next one instead if that comes first.
func (s *stream) ack(a follower.Ack) {
	s.mu.Lock()
	s.acks, s.acked = a, true
	s.mu.Unlock()
	ring(s.wake)
}

// leave ends the stream; the master is told why, if it listens. Nothing is heard from it any more.
func (s *stream) leave(bye farewell) {
	s.mu.Lock()
	s.left, s.bye = true, bye
	s.mu.Unlock()
	close(s.gone)
	ring(s.wake)
	time.AfterFunc(lingerTime, s.cancel)
}

func (s *stream) tell(h heard) bool {
	select {
	case s.f.in <- h:
		return true
	case <-s.gone:
		h.free()
		return false
	}
}

// run opens the stream and reads until it ends.
func (s *stream) run(ctx context.Context, address string) error {
	opts := append(rpc.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rpc.NewCodec()), grpc.MaxCallRecvMsgSize(messageMax)),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(socketBytes), grpc.WithWriteBufferSize(socketBytes), grpc.WithNoProxy(),
	)
	conn, err := grpc.NewClient("passthrough:///"+address, append(opts, s.f.o.DialOptions...)...)
	if err != nil {
		return mqerr.New(mqerr.Invalid, "the master's address %q: %w", address, err)
	}
	defer conn.Close()
	g, err := replicationv1.NewReplicationServiceClient(conn).Replicate(ctx)
	if err != nil {
		return fmt.Errorf("master %s: %w", address, err)
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	defer s.cancel()
	writer.Go(func() { s.write(ctx, g) })
	for {
		m := &incoming{}
		if err := g.RecvMsg(m); err != nil {
			m.free()
			return fmt.Errorf("master %s: %w", address, err)
		}
		s.heard.Store(true)
		if !s.tell(heard{from: s, message: m}) && ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// write sends what is to be said until the stream ends. An error is told by the reader.
func (s *stream) write(ctx context.Context, g grpc.ClientStream) {
	for {
		s.mu.Lock()
		m, acks, acked, left, bye := s.said, s.acks, s.acked, s.left, s.bye
		s.said, s.acked = nil, false
		s.mu.Unlock()
		switch {
		case left:
			if g.SendMsg(bye.request()) == nil {
				_ = g.CloseSend() // never fails
			}
			return
		case m != nil:
		case acked:
			m = ackRequest(acks)
		default:
			select {
			case <-s.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if g.SendMsg(m) != nil {
			return
		}
	}
}
