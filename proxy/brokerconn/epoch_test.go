package brokerconn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/server"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest/membroker"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/brokerconn"
)

// leader is a broker that leads an epoch of shard 5. Its answers wait in later, if that is not nil.
func leader(t *testing.T, epoch brokerapi.Epoch, later chan func()) (*server.Server, string) {
	t.Helper()
	o := membroker.Options{Topics: map[brokerapi.TopicID]int{1: 4}, Epoch: epoch}
	if later != nil {
		o.Later = func(answer func()) { later <- answer }
	}
	so := options(membroker.New(o))
	so.Epoch = epoch
	s, address, _ := serve(t, so, "")
	return s, address
}

// follower is a pool that was told of a master and has it connected.
func follower(t *testing.T, shard brokerconn.Shard, ev brokerconn.Events) *brokerconn.Pool {
	t.Helper()
	pool := brokerconn.NewPool(poolOptions(ev))
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	pool.Update([]brokerconn.Shard{shard})
	eventually(t, "connected", func() bool { _, _, err := pool.Broker(5); return err == nil })
	return pool
}

// A new master in the routes: what the old one has not answered is answered at once, though it is still there, and
// the next request goes to the new one.
func TestNewMaster(t *testing.T) {
	later := make(chan func(), 1)
	old, oldAddress := leader(t, 3, later)
	_, newAddress := leader(t, 4, nil)
	shard := brokerconn.Shard{ID: 5, Name: "a", Address: oldAddress, Epoch: 3, HasMaster: true}
	pool := follower(t, shard, brokerconn.Events{})
	b, _, err := pool.Broker(5)
	require.NoError(t, err)
	under := make(chan error, 1)
	go func() { under <- send(b) }()
	answer := <-later

	next := shard
	next.Address, next.Epoch = newAddress, 4
	pool.Update([]brokerconn.Shard{next})
	require.True(t, mqerr.Is(<-under, mqerr.UnknownOutcome))
	answer()
	eventually(t, "left", func() bool { return old.Links() == 0 })
	eventually(t, "moved", func() bool { _, epoch, err := pool.Broker(5); return err == nil && epoch == 4 })
	require.NoError(t, send(b))
	require.EqualValues(t, 1, pool.Switches())

	// A controller that is behind tells of the old one.
	pool.Update([]brokerconn.Shard{shard})
	_, epoch, err := pool.Broker(5)
	require.NoError(t, err)
	require.Equal(t, brokerapi.Epoch(4), epoch)
	require.NoError(t, send(b))
	require.Zero(t, old.Links())
}

// A broker at the right address that leads an epoch which is over is not asked, however often it is met.
func TestOldEpochIsRefused(t *testing.T) {
	_, address := leader(t, 3, nil)
	pool := brokerconn.NewPool(poolOptions(brokerconn.Events{}))
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	shard := brokerconn.Shard{ID: 5, Name: "a", Address: address, Epoch: 4, HasMaster: true}
	pool.Update([]brokerconn.Shard{shard})
	eventually(t, "refused", func() bool {
		_, _, err := pool.Broker(5)
		return err != nil && strings.Contains(err.Error(), "leads epoch 3, and epoch 4 has begun")
	})
}

// The routes tell of a higher epoch at the same address: the session in the lower one ends.
func TestHigherEpochAtTheSameAddress(t *testing.T) {
	old, address := leader(t, 3, nil)
	shard := brokerconn.Shard{ID: 5, Name: "a", Address: address, Epoch: 3, HasMaster: true}
	var u ups
	pool := follower(t, shard, u.events())
	shard.Epoch = 3
	pool.Update([]brokerconn.Shard{shard})
	require.Equal(t, []string{"up5"}, u.got(), "the same again changes nothing")
	shard.Epoch, shard.HasMaster = 4, false
	pool.Update([]brokerconn.Shard{shard})
	eventually(t, "left", func() bool { return old.Links() == 0 && len(u.got()) == 2 })
}

// A connection that waits for its next try does not wait when a new master is known.
func TestNewMasterEndsTheWait(t *testing.T) {
	_, address := leader(t, 4, nil)
	o := poolOptions(brokerconn.Events{})
	o.BackoffMin, o.BackoffMax = time.Hour, time.Hour
	pool := brokerconn.NewPool(o)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	shard := brokerconn.Shard{ID: 5, Name: "a", Address: "127.0.0.1:1", Epoch: 3, HasMaster: true}
	pool.Update([]brokerconn.Shard{shard})
	eventually(t, "tried", func() bool {
		_, _, err := pool.Broker(5)
		return err != nil && strings.Contains(err.Error(), "cannot be reached")
	})
	shard.Address, shard.Epoch = address, 4
	pool.Update([]brokerconn.Shard{shard})
	eventually(t, "connected", func() bool { _, _, err := pool.Broker(5); return err == nil })
}
