package brokerconn

import (
	"context"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// EndTxn gives the verdict of a half message.
func (c *Conn) EndTxn(req *brokerapi.EndTxnRequest, done func(*brokerapi.EndTxnReply, error)) {
	if b := c.client.Load(); b != nil {
		b.EndTxn(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Checks takes checks of half messages.
func (c *Conn) Checks(req *brokerapi.ChecksRequest, done func(*brokerapi.ChecksReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Checks(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Recall takes a delayed message back.
func (c *Conn) Recall(req *brokerapi.RecallRequest, done func(*brokerapi.RecallReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Recall(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Forward moves leased messages to the dead-letter topic.
func (c *Conn) Forward(req *brokerapi.ForwardRequest, done func(*brokerapi.ForwardReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Forward(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Pull reads a queue from an offset on.
func (c *Conn) Pull(req *brokerapi.PullRequest, done func(*brokerapi.PullReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Pull(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Producers names the topics of which this proxy has producers.
func (c *Conn) Producers(ctx context.Context, req *brokerapi.ProducersRequest) (*brokerapi.ProducersReply, error) {
	if b := c.client.Load(); b != nil {
		return b.Producers(ctx, req)
	}
	return nil, c.down.Load()
}

// SetOffsets stores positions of pull consumers.
func (c *Conn) SetOffsets(ctx context.Context, req *brokerapi.SetOffsetsRequest) (*brokerapi.SetOffsetsReply, error) {
	if b := c.client.Load(); b != nil {
		return b.SetOffsets(ctx, req)
	}
	return nil, c.down.Load()
}

// Offset asks for one offset of a queue.
func (c *Conn) Offset(ctx context.Context, req *brokerapi.OffsetRequest) (*brokerapi.OffsetReply, error) {
	if b := c.client.Load(); b != nil {
		return b.Offset(ctx, req)
	}
	return nil, c.down.Load()
}

// Reset moves a group's position.
func (c *Conn) Reset(ctx context.Context, req *brokerapi.ResetRequest) (*brokerapi.ResetReply, error) {
	if b := c.client.Load(); b != nil {
		return b.Reset(ctx, req)
	}
	return nil, c.down.Load()
}

// SyncLite changes what a client of a lite group subscribes to.
func (c *Conn) SyncLite(ctx context.Context, req *brokerapi.SyncLiteRequest) (*brokerapi.SyncLiteReply, error) {
	if b := c.client.Load(); b != nil {
		return b.SyncLite(ctx, req)
	}
	return nil, c.down.Load()
}

// LiteGone takes the notices of ended lite subscriptions.
func (c *Conn) LiteGone(ctx context.Context, req *brokerapi.LiteGoneRequest) (*brokerapi.LiteGoneReply, error) {
	if b := c.client.Load(); b != nil {
		return b.LiteGone(ctx, req)
	}
	return nil, c.down.Load()
}

// Redrive stores dead letters again.
func (c *Conn) Redrive(ctx context.Context, req *brokerapi.RedriveRequest) (*brokerapi.RedriveReply, error) {
	if b := c.client.Load(); b != nil {
		return b.Redrive(ctx, req)
	}
	return nil, c.down.Load()
}

// Find looks for stored messages.
func (c *Conn) Find(ctx context.Context, req *brokerapi.FindRequest) (*brokerapi.FindReply, error) {
	if b := c.client.Load(); b != nil {
		return b.Find(ctx, req)
	}
	return nil, c.down.Load()
}

// Trace tells the life of one stored message.
func (c *Conn) Trace(ctx context.Context, req *brokerapi.TraceRequest) (*brokerapi.TraceReply, error) {
	if b := c.client.Load(); b != nil {
		return b.Trace(ctx, req)
	}
	return nil, c.down.Load()
}

// Drain asks what is left of message groups on a topic that grows.
func (c *Conn) Drain(ctx context.Context, req *brokerapi.DrainRequest) (*brokerapi.DrainReply, error) {
	if b := c.client.Load(); b != nil {
		return b.Drain(ctx, req)
	}
	return nil, c.down.Load()
}

// LiteList lists lite topics.
func (c *Conn) LiteList(ctx context.Context, req *brokerapi.LiteListRequest) (*brokerapi.LiteListReply, error) {
	if b := c.client.Load(); b != nil {
		return b.LiteList(ctx, req)
	}
	return nil, c.down.Load()
}
