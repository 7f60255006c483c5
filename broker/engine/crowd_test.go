package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// crowd is many callers of one engine. Each counts what it asked and what was answered.
type crowd struct {
	b        *bench
	asked    atomic.Int64
	answered atomic.Int64
	stored   atomic.Int64 // messages whose send was answered OK
	sessions [4]atomic.Pointer[brokerapi.Broker]
}

// reply counts one call; the function it returns counts its answer.
func (c *crowd) reply() func() {
	c.asked.Add(1)
	var once atomic.Bool
	return func() {
		if once.Swap(true) {
			c.b.t.Error("a call was answered twice")
		}
		c.answered.Add(1)
	}
}

func (c *crowd) attach(i int) {
	var told atomic.Bool
	s, err := c.b.engine.Attach(fmt.Sprint("proxy", i), brokerapi.Events{
		Ready: func(r []brokerapi.Ready) {
			for _, one := range r {
				if one.Count < 1 {
					c.b.t.Error("an event for nothing")
				}
			}
		},
		Down: func(error) {
			if told.Swap(true) {
				c.b.t.Error("a proxy was told twice that the broker is gone")
			}
		},
	})
	if err == nil {
		c.sessions[i].Store(&s)
	}
}

// caller makes calls of all kinds until stop is closed, and some more.
func (c *crowd) caller(seed uint64, stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(seed, 5))
	left := 50
	for left > 0 {
		select {
		case <-stop:
			left--
		default:
		}
		i := rng.IntN(len(c.sessions))
		s := *c.sessions[i].Load()
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
			c.send(s, rng)
		case 4, 5, 6, 7, 8:
			c.pop(s, rng)
		case 9:
			done := c.reply()
			_ = s.Alive(c.b.t.Context(), []string{"c1", "c2", fmt.Sprint(rng.Int())})
			done()
		case 10:
			done := c.reply()
			_, _ = s.DescribeGroup(c.b.t.Context(), brokerapi.TopicID(topicSync), brokerapi.GroupID(groupA))
			_, _ = c.b.engine.Snapshot(c.b.t.Context(), 1000)
			done()
		case 11:
			done := c.reply()
			if rng.IntN(10) == 0 {
				_ = s.Close()
				c.attach(i)
			} else {
				_ = s.EndSession(c.b.t.Context(), fmt.Sprint("c", rng.IntN(3)))
			}
			done()
		}
	}
}

func (c *crowd) send(s brokerapi.Broker, rng *rand.Rand) {
	req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync + record.TopicID(rng.IntN(2)))}
	for range 1 + rng.IntN(3) {
		req.Messages = append(req.Messages, message("body"))
	}
	done := c.reply()
	s.Send(req, func(r *brokerapi.SendReply, err error) {
		if err == nil {
			c.stored.Add(int64(len(r.Results)))
		}
		done()
	})
}

func (c *crowd) pop(s brokerapi.Broker, rng *rand.Rand) {
	req := &brokerapi.PopRequest{
		Topic: brokerapi.TopicID(topicSync + record.TopicID(rng.IntN(2))), Group: brokerapi.GroupID(groupA + record.GroupID(rng.IntN(2))), Client: fmt.Sprint("c", rng.IntN(3)),
		Max: 1 + rng.IntN(8), Invisible: time.Minute, Session: rng.IntN(2) == 0, Arm: true,
	}
	if rng.IntN(3) == 0 {
		req.AttemptID = fmt.Sprint(rng.IntN(50))
	}
	mode := rng.IntN(3)
	done := c.reply()
	s.Pop(req, func(r *brokerapi.PopReply, err error) {
		done()
		if err != nil {
			return
		}
		defer r.Release()
		var hs []brokerapi.Handle
		for _, m := range r.Messages {
			if string(m.Body) != "body" {
				c.b.t.Errorf("a body %q", m.Body)
			}
			hs = append(hs, brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch})
		}
		switch mode {
		case 0:
			done := c.reply()
			s.Change(&brokerapi.ChangeRequest{Topic: req.Topic, Group: req.Group, Handles: hs, Mode: brokerapi.ChangeKeep}, func(*brokerapi.ChangeReply, error) { done() })
		default:
			done := c.reply()
			s.Ack(&brokerapi.AckRequest{Topic: req.Topic, Group: req.Group, Handles: hs}, func(*brokerapi.AckReply, error) { done() })
		}
	})
}

// TestCrowd lets many callers of all kinds run over several proxies that come and go, and closes the
// engine in the middle: every call is answered once, and nothing is left.
//
//fault:kill proxies come and go under many callers, and the broker stops in the middle => every call is answered once, and nothing is left over
func TestCrowd(t *testing.T) {
	b := newBench(t, Options{CheckpointBytes: 256 << 10, TurnBytes: 16 << 10, FlushBytes: 32 << 10})
	b.mustOpen()
	b.define()
	c := &crowd{b: b}
	for i := range c.sessions {
		c.attach(i)
	}
	stop := make(chan struct{})
	var callers sync.WaitGroup
	seed := testseed.First(t)
	for i := range 32 {
		callers.Go(func() { c.caller(seed+uint64(i), stop) })
	}
	require.Eventually(t, func() bool { return c.answered.Load() > 3000/int64(raceSlows) }, 20*time.Second, time.Millisecond)
	_, err := b.engine.Close()
	require.NoError(t, err)
	close(stop)
	callers.Wait()
	require.Equal(t, c.asked.Load(), c.answered.Load())
	err = (*c.sessions[0].Load()).Alive(t.Context(), nil)
	require.True(t, mqerr.Is(err, mqerr.Draining) || mqerr.Is(err, mqerr.Unavailable), "%v", err)
	require.NoError(t, b.store.Close())
	b.engine = nil

	b.fs.(*memfs.FS).Restart()
	b.mustOpen()
	found := int64(0)
	for _, id := range []record.TopicID{topicSync, topicAsync} {
		qs, err := b.proxy.DescribeTopic(t.Context(), brokerapi.TopicID(id))
		require.NoError(t, err)
		for _, q := range qs {
			found += int64(q.Max)
		}
	}
	require.Equal(t, c.stored.Load(), found, "stored is what was answered OK: nobody was told of an unknown outcome")
	before := b.views()
	b.kill()
	b.fs.(*memfs.FS).Restart()
	require.Equal(t, before, b.replayed())
}
