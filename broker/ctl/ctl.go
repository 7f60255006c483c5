// Package ctl is the broker's client of the controller: it registers the process, keeps its session
// alive, tells what the controller says of the broker group, and, while this broker leads, hands the definitions of
// topics and groups to the engine, reporting back what is logged.
//
// A broker whose controller is away goes on serving the epoch that it leads; the session is opened
// again in the background.
package ctl

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// ProtocolVersion is the version of the internal protocol that this release speaks.
const ProtocolVersion = 1

// Member is what a broker process says of itself when it registers.
type Member struct {
	Release         string
	ClusterID       string // "" before it has joined one
	Shard           string // name of the broker group
	Replica         uint32
	UUID            [16]byte
	Address         string // for proxies, host:port
	LastIncarnation uint64
	Clean           bool
	LogEnd          int64
	MaxEpoch        uint64
	// Damaged: records are missing or damaged that were in its log.
	Damaged bool
	// Learner: it wants to follow only.
	Learner bool
	// MinISR and Mode count if it founds the broker group. MinISR 0: as the controller sees fit.
	MinISR int
	Mode   quorum.Mode
}

// Term is what the controller gave to a registered process.
type Term struct {
	ClusterID   string
	ShardID     uint32
	Incarnation uint64
	Epoch       uint64 // 0: it does not lead
	SetVersion  uint64
	// Group is the broker group at that time.
	Group ShardView
}

// Client speaks to the controllers over one connection, which finds the right node by itself (internal/nodes).
type Client struct {
	rpc    controllerv1.ControllerServiceClient
	shards controllerv1.ShardServiceClient
	log    *slog.Logger
}

// New returns a client. log may be nil.
func New(conn grpc.ClientConnInterface, log *slog.Logger) *Client {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Client{rpc: controllerv1.NewControllerServiceClient(conn), shards: controllerv1.NewShardServiceClient(conn), log: log}
}

// Pauses between tries, and how often a heartbeat goes out without a reason.
const (
	retryFirst = 20 * time.Millisecond
	retryMax   = 250 * time.Millisecond // a new leader leads within a second or two
	heartbeat  = 500 * time.Millisecond
	// tellAfter is how long the controller may be away before the log says so.
	tellAfter = time.Second
)

// Register announces the process. It tries until the controller answers; a refusal is final.
func (c *Client) Register(ctx context.Context, m Member) (Term, error) {
	req := &controllerv1.RegisterRequest{
		Hello:     &controllerv1.Hello{Version: ProtocolVersion, Release: m.Release, ClusterId: m.ClusterID},
		ShardName: m.Shard, ReplicaId: m.Replica, Uuid: m.UUID[:], Address: m.Address,
		LastIncarnation: m.LastIncarnation, Clean: m.Clean, LogEnd: m.LogEnd, MaxEpoch: m.MaxEpoch,
		Damaged: m.Damaged, Learner: m.Learner, MinIsr: int32(m.MinISR), CommitMode: controllerv1.CommitMode_COMMIT_MODE_DURABLE,
	}
	if m.Mode == quorum.Memory {
		req.CommitMode = controllerv1.CommitMode_COMMIT_MODE_MEMORY
	}
	pause, told, began := retryFirst, false, time.Now()
	for {
		resp, err := c.rpc.Register(ctx, req)
		if err == nil {
			return term(resp)
		}
		err = rpc.FromStatus(err)
		if !again(err) {
			return Term{}, err
		}
		if !told && time.Since(began) >= tellAfter {
			told = true
			c.log.LogAttrs(ctx, slog.LevelWarn, "the controller does not answer: the broker waits for it; check --controller and that it runs",
				slog.String("error", err.Error()))
		}
		if err := sleep(ctx, pause); err != nil {
			return Term{}, err
		}
		pause = min(2*pause, retryMax)
	}
}

func term(resp *controllerv1.RegisterResponse) (Term, error) {
	if v := resp.GetHello().GetVersion(); v != ProtocolVersion {
		return Term{}, mqerr.New(mqerr.Unsupported, "the controller speaks version %d of the internal protocol, this broker %d: run both from release %s",
			v, ProtocolVersion, resp.GetHello().GetRelease())
	}
	return Term{
		ClusterID: resp.GetHello().GetClusterId(), ShardID: resp.GetShard().GetId(), Incarnation: resp.GetIncarnation(),
		Epoch: resp.GetEpoch(), SetVersion: resp.GetShard().GetSetVersion(), Group: shardOf(resp.GetShard(), false),
	}, nil
}

// again reports whether a failed call may succeed later.
func again(err error) bool {
	switch mqerr.KindOf(err) {
	case mqerr.Unavailable, mqerr.NotLeader, mqerr.Draining, mqerr.Exhausted, mqerr.UnknownOutcome, mqerr.Timeout, mqerr.DiskFull:
		return true
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d)) // not all at once
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
