package server

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// forwardedKey is the header of a call that another controller has handed on: it is not handed on again.
const forwardedKey = "perigee-forwarded-by"

const (
	// reachWait is how long a connection to the leader may take.
	reachWait = time.Second
	// placePoll is how often it is looked who leads while nobody does.
	placePoll = 20 * time.Millisecond
)

// handedOn are the calls that only the leader carries out. again says that a call whose outcome is
// unknown may be made once more: the answer is then by what is there.
var handedOn = map[string]struct {
	reply func() proto.Message
	again bool
}{
	// A second registration is another incarnation: the broker asks for it itself.
	controllerv1.ControllerService_Register_FullMethodName:    {func() proto.Message { return new(controllerv1.RegisterResponse) }, false},
	controllerv1.ControllerService_PutTopic_FullMethodName:    {func() proto.Message { return new(controllerv1.PutTopicResponse) }, true},
	controllerv1.ControllerService_EnsureTopic_FullMethodName: {func() proto.Message { return new(controllerv1.EnsureTopicResponse) }, true},
	controllerv1.ControllerService_PutGroup_FullMethodName:    {func() proto.Message { return new(controllerv1.PutGroupResponse) }, true},
	controllerv1.ControllerService_DeleteTopic_FullMethodName: {func() proto.Message { return new(controllerv1.DeleteTopicResponse) }, true},
	controllerv1.ControllerService_DeleteGroup_FullMethodName: {func() proto.Message { return new(controllerv1.DeleteGroupResponse) }, true},
	// A step of a growth that has ended is refused: the second answer would not tell about the first.
	controllerv1.ControllerService_GrowTopic_FullMethodName: {func() proto.Message { return new(controllerv1.GrowTopicResponse) }, false},
	// The answer to a second one would be a refusal, which is a verdict about the first: its master asks again.
	controllerv1.ShardService_AlterSyncStateSet_FullMethodName: {func() proto.Message { return new(controllerv1.AlterSyncStateSetResponse) }, false},
	controllerv1.ShardService_Elect_FullMethodName:             {func() proto.Message { return new(controllerv1.ElectResponse) }, false},
	controllerv1.ShardService_SetShard_FullMethodName:          {func() proto.Message { return new(controllerv1.SetShardResponse) }, true},
	controllerv1.ShardService_RemoveReplica_FullMethodName:     {func() proto.Message { return new(controllerv1.RemoveReplicaResponse) }, false},
	controllerv1.ShardService_DeleteShard_FullMethodName:       {func() proto.Message { return new(controllerv1.DeleteShardResponse) }, true},
	controllerv1.ClusterService_Announce_FullMethodName:        {func() proto.Message { return new(controllerv1.AnnounceResponse) }, true},
	controllerv1.ClusterService_AddMember_FullMethodName:       {func() proto.Message { return new(controllerv1.AddMemberResponse) }, true},
	controllerv1.ClusterService_RemoveMember_FullMethodName:    {func() proto.Message { return new(controllerv1.RemoveMemberResponse) }, true},
	controllerv1.ClusterService_Transfer_FullMethodName:        {func() proto.Message { return new(controllerv1.TransferResponse) }, false},
}

// Interceptor hands calls on to the leader when this node does not lead, with the caller's deadline.
func (s *Server) Interceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if _, ok := handedOn[info.FullMethod]; !ok || forwarded(ctx) {
			return next(ctx, req)
		}
		return s.handOn(ctx, req, info.FullMethod, next)
	}
}

func forwarded(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return len(md.Get(forwardedKey)) > 0
}

// handOn makes a call where the leader is. It is made again at the next leader if the one that was asked
// has surely done nothing, or if asking again is harmless.
func (s *Server) handOn(ctx context.Context, req any, method string, next grpc.UnaryHandler) (any, error) {
	how := handedOn[method]
	var unknown error    // of an earlier try
	var giveUp time.Time // an election takes less
	for {
		addr, err := s.place(ctx)
		var resp any
		switch {
		case err != nil:
		case addr == "":
			resp, err = next(ctx, req)
		default:
			resp, err = s.callAt(ctx, addr, method, req, how.reply())
		}
		if err == nil {
			return resp, nil
		}
		kind := mqerr.KindOf(rpc.FromStatus(rpc.ToStatus(err)))
		if giveUp.IsZero() {
			giveUp = time.Now().Add(leaderWait)
		}
		last := ctx.Err() != nil || time.Now().After(giveUp)
		switch {
		case kind == mqerr.UnknownOutcome && how.again && !last:
			unknown = err
			if !pause(ctx, placePoll) {
				return nil, err
			}
		case kind == mqerr.NotLeader && !last && addr != noLeader, kind == mqerr.Draining && addr != "" && !last:
			if !pause(ctx, placePoll) { // who was asked is about to know better
				return nil, orElse(unknown, err)
			}
		case unknown != nil && absent(kind) && deletes(method):
			return how.reply(), nil // it is gone, as was wanted
		case unknown != nil && (kind == mqerr.NotLeader || kind == mqerr.Unavailable):
			return nil, unknown
		default:
			return nil, err
		}
	}
}

func absent(k mqerr.Kind) bool {
	return k == mqerr.TopicNotFound || k == mqerr.GroupNotFound || k == mqerr.NotFound
}

func deletes(method string) bool { return strings.Contains(method, "/Delete") }

// noLeader stands for an address that is not known.
const noLeader = "?"

// place finds the leader: an empty address if this node leads. It waits a little while nobody does.
func (s *Server) place(ctx context.Context) (addr string, err error) {
	ctx, stop := answerBy(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	for {
		leads, err := s.o.Registry.Leads()
		if leads || err != nil {
			return "", err
		}
		if addr := s.leaderAddr(); addr != "" {
			return addr, nil
		}
		if !pause(ctx, placePoll) {
			return noLeader, s.leaderless()
		}
	}
}

// leaderless says that nothing can be done now.
func (s *Server) leaderless() error {
	return mqerr.New(mqerr.NotLeader, "no controller leads at the moment: nothing was changed; what is served goes on; if that lasts, start the other controllers")
}

// leaderAddr is where the leader is reached, empty if there is none, or it is this node.
func (s *Server) leaderAddr() string {
	id := s.o.Node.Leader()
	if id == "" || id == s.o.ID {
		return ""
	}
	var c state.Controller
	s.o.Node.View(func(st *state.State) { c, _ = st.Controller(id) })
	return c.Address
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// callAt makes a call at another controller. NotLeader: nothing was sent.
func (s *Server) callAt(ctx context.Context, addr, method string, req any, reply proto.Message) (proto.Message, error) {
	near, cancel := context.WithTimeout(ctx, reachWait)
	defer cancel()
	conn, err := s.peers.conn(near, addr)
	if err != nil {
		return nil, mqerr.New(mqerr.NotLeader, "the leader is not reached: %w", err)
	}
	err = conn.Invoke(metadata.NewOutgoingContext(ctx, metadata.Pairs(forwardedKey, s.o.ID)), method, req, reply)
	if err != nil && !rpc.Answered(err) && status.Code(err) == codes.Unavailable {
		return nil, mqerr.New(mqerr.UnknownOutcome, "the leading controller went away over this call: %w", err)
	}
	return reply, err
}
