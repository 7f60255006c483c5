package checks

import (
	"context"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// checksAtOnce is how many checks are fetched in one call.
const checksAtOnce = 64

// fetch takes the checks that a broker has, until there is none.
func (c *Checker) fetch(ctx context.Context, id brokerapi.ShardID, s *shard) error {
	for ctx.Err() == nil {
		c.mu.Lock()
		noticed := s.noticed
		s.noticed = false
		c.mu.Unlock()
		if !noticed {
			return nil
		}
		reply, err := c.take(id)
		if err != nil {
			return err
		}
		if reply.More {
			c.mu.Lock()
			s.noticed = true
			c.mu.Unlock()
		}
		messages := c.encode(id, reply)
		reply.Release()
		for _, m := range messages {
			c.dispatch(m)
		}
	}
	return nil
}

// take fetches some checks.
func (c *Checker) take(id brokerapi.ShardID) (*brokerapi.ChecksReply, error) {
	b, epoch, err := c.o.Brokers.Broker(id)
	if err != nil {
		return nil, err
	}
	type answer struct {
		reply *brokerapi.ChecksReply
		err   error
	}
	done := make(chan answer, 1)
	req := &brokerapi.ChecksRequest{Head: brokerapi.Head{Epoch: epoch, Deadline: time.Now().Add(askTimeout)}, Max: checksAtOnce}
	b.Checks(req, func(r *brokerapi.ChecksReply, err error) { done <- answer{r, err} })
	a := <-done
	return a.reply, a.err
}

// message is one check on its way.
type message struct {
	topic string
	bytes []byte
	tries int
}

// encode makes the commands; the broker's bytes are not needed afterwards.
func (c *Checker) encode(id brokerapi.ShardID, reply *brokerapi.ChecksReply) []message {
	names := namesOf(c.o.Routes.Load(), reply.Checks)
	host := c.o.StoreHost(id)
	out := make([]message, 0, len(reply.Checks))
	for i := range reply.Checks {
		k := &reply.Checks[i]
		name, ok := names[k.Topic]
		if !ok {
			c.unsent.Add(1)
			continue
		}
		d := wire.Delivery{Topic: wire.AppendName(nil, name), StoreHost: host}
		out = append(out, message{topic: name, bytes: wire.AppendCheck(nil, &k.Message, &d, wire.MessageID(k.Message.Sys))})
	}
	return out
}

// namesOf finds the names of the topics of checks.
func namesOf(routes *route.Snapshot, checks []brokerapi.Check) map[brokerapi.TopicID]string {
	names := map[brokerapi.TopicID]string{}
	for i := range checks {
		if t := routes.TopicByID(checks[i].Topic); t != nil {
			names[t.ID] = t.Name
		}
	}
	return names
}
