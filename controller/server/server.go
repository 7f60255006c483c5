// Package server serves perigee.controller.v1: it decodes a request, calls the Raft node or the
// registry, and encodes the answer. Errors are plain; the interceptors of internal/rpc make statuses
// of them.
package server

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// ProtocolVersion is the version of perigee.controller.v1 that this release speaks.
const ProtocolVersion = 1

const (
	// leaderWait is how long a call waits for a leader before it is refused: an election takes less.
	leaderWait = 3 * time.Second
	// confirmMax is how long a change waits for the brokers if the caller has no deadline.
	confirmMax = 10 * time.Second
	// answerMargin is how long before the caller's deadline the answer is sent, so that it arrives.
	answerMargin = 200 * time.Millisecond
	// firstBeat is how long a new session may be silent.
	firstBeat = 5 * time.Second
	// firstUpdate is how long a watch may wait for its first update: another node may have it.
	firstUpdate = 5 * time.Second
)

// Node carries out commands and shows the state (controller/raft).
type Node interface {
	Apply(c state.Command) (state.Result, error)
	View(f func(*state.State))
	Leader() string
	// Verify asks a majority whether this node still leads.
	Verify(ctx context.Context) error
	Voters() ([]raft.Voter, error)
	Look(addr string) (id string, member bool, err error)
	Learner(raft.Member) error
	Voter(raft.Member) error
	Remove(id string) error
	Transfer(id string) error
	Progress() raft.Progress
}

// Options configures New. All fields are needed.
type Options struct {
	ID       string // of this node
	Node     Node
	Registry *registry.Registry
	Release  string
	Dial     func(ctx context.Context, addr string) (net.Conn, error) // to brokers and other controllers
	Now      func() time.Time
	Log      *slog.Logger
	// TopicsMax and GroupsMax are how many there may be for one to be created; 0: the most that are possible.
	TopicsMax, GroupsMax int
}

// Server implements the services. Each session has three goroutines beside its handler.
type Server struct {
	controllerv1.UnimplementedControllerServiceServer
	controllerv1.UnimplementedClusterServiceServer
	controllerv1.UnimplementedShardServiceServer
	o      Options
	flight singleflight.Group
	wg     sync.WaitGroup
	peers  peers
	verify verifier
	locks  sync.Map // state.ShardID -> chan struct{}: one election of a shard at a time
}

// New returns a server.
func New(o Options) *Server {
	return &Server{o: o, peers: peers{dial: o.Dial}, verify: verifier{ask: o.Node.Verify}}
}

// RegisterWith adds the services to a gRPC server.
func (s *Server) RegisterWith(g grpc.ServiceRegistrar) {
	controllerv1.RegisterControllerServiceServer(g, s)
	controllerv1.RegisterClusterServiceServer(g, s)
	controllerv1.RegisterShardServiceServer(g, s)
}

// Wait returns when the goroutines of all sessions have ended: call it when the gRPC server has stopped.
func (s *Server) Wait() { s.wg.Wait() }

// Close ends the connections to other controllers.
func (s *Server) Close() error { return s.peers.close() }

// leading waits a little for a leader, and refuses unless it is this node.
func (s *Server) leading(ctx context.Context) error {
	addr, err := s.place(ctx)
	if err == nil && addr != "" {
		err = rpc.ElsewhereError{Err: mqerr.New(mqerr.NotLeader, "this controller is not the leader, ask %s", addr), Leader: addr}
	}
	return err
}

// hello checks who speaks. A nil one is allowed where the caller has said it before.
func (s *Server) hello(h *controllerv1.Hello, needed bool) error {
	if h == nil {
		if needed {
			return mqerr.New(mqerr.Unsupported, "the request does not say which version it speaks")
		}
		return nil
	}
	if v := h.GetVersion(); v != ProtocolVersion {
		newer := h.GetRelease()
		if v < ProtocolVersion {
			newer = s.o.Release
		}
		return mqerr.New(mqerr.Unsupported, "the caller (release %q) speaks version %d of the controller's protocol, this controller (release %q) version %d: run release %q on both", h.GetRelease(), v, s.o.Release, ProtocolVersion, newer)
	}
	if id, own := h.GetClusterId(), s.cluster(); id != "" && own != "" && id != own {
		return mqerr.New(mqerr.Denied, "the caller belongs to cluster %s, this controller to %s: give it its own controller's address", id, own)
	}
	return nil
}

func (s *Server) cluster() (id string) {
	s.o.Node.View(func(st *state.State) { id = st.Cluster() })
	return id
}

// ownHello says who this is.
func (s *Server) ownHello() *controllerv1.Hello {
	return &controllerv1.Hello{Version: ProtocolVersion, Release: s.o.Release, ClusterId: s.cluster()}
}

// answerBy bounds a wait so that its outcome still reaches the caller.
func answerBy(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, confirmMax)
	}
	left := time.Until(deadline)
	return context.WithTimeout(ctx, left-min(left/10, answerMargin))
}
