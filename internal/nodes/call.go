package nodes

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Invoke makes a call at one node after another until one has answered it, or ctx ends. Errors are gRPC
// statuses, as those of other connections; UnknownOutcome says that the node that had the call went away,
// Unavailable that none leads, or none is reached.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	bound := ctx
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	var before error // of an earlier try
	for pause := pauseFirst; ; pause = min(2*pause, pauseMax) {
		addr, conn, err := c.reach(bound)
		if err != nil {
			return rpc.ToStatus(either(before, err))
		}
		if err = conn.Invoke(ctx, method, args, reply, opts...); err == nil {
			return nil
		}
		again := false
		said := err
		switch kind := mqerr.KindOf(rpc.FromStatus(err)); {
		case !rpc.Answered(err) && status.Code(err) == codes.Unavailable:
			c.leave(addr, "")
			err = mqerr.New(mqerr.UnknownOutcome, "controller %s went away over this call: %w", addr, err)
			said, again = err, slices.Contains(repeatable, method)
		case kind == mqerr.NotLeader || kind == mqerr.Draining:
			c.leave(addr, rpc.LeaderOf(rpc.FromStatus(err)))
			again = true // nothing was done
			said = mqerr.New(mqerr.Unavailable, "%s", rpc.FromStatus(err).Error())
		}
		if !again || !rest(bound, pause) {
			return rpc.ToStatus(said)
		}
		before = said
	}
}

func either(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// NewStream opens a stream at the node in use, or the next one that can be reached. When it fails the next
// stream goes elsewhere: to the leader that was named, or the next node.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	near, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addr, conn, err := c.reach(near)
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	s, err := conn.NewStream(ctx, desc, method, opts...)
	if err != nil {
		c.failed(ctx.Err(), addr, err)
		return nil, err
	}
	return stream{s, c, addr, ctx.Err}, nil
}

// failed leaves a node whose stream has ended, unless the caller has ended it.
func (c *Conn) failed(over error, addr string, err error) {
	if over != nil || errors.Is(err, io.EOF) {
		return
	}
	err = rpc.FromStatus(err)
	switch mqerr.KindOf(err) {
	case mqerr.NotLeader, mqerr.Unavailable, mqerr.Draining:
		c.leave(addr, rpc.LeaderOf(err))
	}
}

// stream tells the connection how it ends.
type stream struct {
	grpc.ClientStream
	c    *Conn
	addr string
	over func() error // of the caller's context: that of the stream has ended when the stream has
}

// RecvMsg receives a message.
func (s stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		s.c.failed(s.over(), s.addr, err)
	}
	return err
}
