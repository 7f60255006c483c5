package server

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/isolation"
)

// groups are broker groups that take a while, or refuse.
type groups struct {
	took  map[brokerapi.ShardID]time.Duration
	fails map[brokerapi.ShardID]error
	went  map[brokerapi.ShardID]int
}

func (g *groups) Broker(id brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error) {
	return oneGroup{groups: g, id: id}, 1, nil
}

type oneGroup struct {
	brokerapi.Broker // calls that are not used panic
	*groups
	id brokerapi.ShardID
}

func (g oneGroup) Send(r *brokerapi.SendRequest, done func(*brokerapi.SendReply, error)) {
	g.went[g.id]++
	time.AfterFunc(g.took[g.id], func() {
		replied(g.fails[g.id], brokerapi.SendReply{Results: make([]brokerapi.SendResult, len(r.Messages))}, done)
	})
}

// TestSlowGroupIsLeftAlone: sends that may choose go to the group that is fast, back when the other one is as fast again, and to
// the slow one where nobody else takes them.
func TestSlowGroupIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &groups{took: map[brokerapi.ShardID]time.Duration{1: time.Millisecond, 2: time.Millisecond}, fails: map[brokerapi.ShardID]error{}}
		s := newSite(func(o *Options) { o.Brokers, o.Isolation = g, isolation.New(isolation.Options{}) })
		next := 0
		send := func(n int) {
			g.went = map[brokerapi.ShardID]int{}
			for range n {
				next++
				r := ask(t, s.SendMessage, sendOf("two", fmt.Sprint("id", next)), &rmqv2.SendMessageResponse{})
				require.Equal(t, rmqv2.Code_OK, r.GetStatus().GetCode())
			}
		}
		send(100)
		require.Greater(t, g.went[1], 25)
		require.Greater(t, g.went[2], 25)
		g.took[1] = time.Second
		send(100)
		send(100)
		require.LessOrEqual(t, g.went[1], 2)

		g.fails[2] = mqerr.New(mqerr.DiskFull, "full")
		send(1)
		require.Positive(t, g.went[1])
		delete(g.fails, 2)

		g.took[1] = time.Millisecond
		time.Sleep(time.Minute)
		send(10)
		send(100)
		require.Greater(t, g.went[1], 25)
	})
}
