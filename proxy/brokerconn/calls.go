package brokerconn

import (
	"context"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Send stores messages.
func (c *Conn) Send(req *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Send(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Pop leases messages.
func (c *Conn) Pop(req *brokerapi.PopRequest, done func(*brokerapi.PopReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Pop(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Ack ends messages for a group.
func (c *Conn) Ack(req *brokerapi.AckRequest, done func(*brokerapi.AckReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Ack(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Change moves the end of leases.
func (c *Conn) Change(req *brokerapi.ChangeRequest, done func(*brokerapi.ChangeReply, error)) {
	if b := c.client.Load(); b != nil {
		b.Change(req, done)
		return
	}
	done(nil, c.down.Load())
}

// Alive reports clients.
func (c *Conn) Alive(ctx context.Context, clients []string) error {
	if b := c.client.Load(); b != nil {
		return b.Alive(ctx, clients)
	}
	return c.down.Load()
}

// EndSession says that a client has said goodbye.
func (c *Conn) EndSession(ctx context.Context, client string) error {
	if b := c.client.Load(); b != nil {
		return b.EndSession(ctx, client)
	}
	return c.down.Load()
}

// DescribeGroup shows the state of a group on a topic.
func (c *Conn) DescribeGroup(ctx context.Context, topic brokerapi.TopicID, group brokerapi.GroupID) ([]brokerapi.GroupQueue, error) {
	if b := c.client.Load(); b != nil {
		return b.DescribeGroup(ctx, topic, group)
	}
	return nil, c.down.Load()
}

// DescribeTopic shows the state of a topic.
func (c *Conn) DescribeTopic(ctx context.Context, topic brokerapi.TopicID) ([]brokerapi.TopicQueue, error) {
	if b := c.client.Load(); b != nil {
		return b.DescribeTopic(ctx, topic)
	}
	return nil, c.down.Load()
}
