package broker_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/broker/clock"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/obs"
	"github.com/perigee-mq/perigee/internal/testport"
)

// team is a broker group of several replicas, on real ports.
type team struct {
	k       *cluster
	options []broker.Options
	running []*running // nil: it does not run
	topic   brokerapi.TopicID
	group   brokerapi.GroupID
	change  func(*broker.Options)
}

func newTeam(t *testing.T, n, minISR int) *team {
	t.Helper()
	m := &team{k: newCluster(t)}
	for i := range n {
		m.options = append(m.options, broker.Options{DataDir: t.TempDir(), ID: uint32(i + 1), MinISR: minISR})
		m.running = append(m.running, nil)
	}
	return m
}

// begin starts a replica, and does not wait for it.
func (m *team) begin(i int) {
	m.k.t.Helper()
	o := m.options[i]
	addr := testport.Addr(m.k.t)
	ln, err := net.Listen("tcp", addr)
	require.NoError(m.k.t, err)
	o.Listener, o.Advertise = ln, addr
	if testing.Verbose() {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("replica", o.ID)
	}
	if m.change != nil {
		m.change(&o)
	}
	m.running[i] = m.k.run(o)
}

// end stops a replica.
func (m *team) end(i int) {
	m.k.t.Helper()
	require.NoError(m.k.t, m.running[i].stop())
	m.running[i] = nil
}

// until waits for something.
func (m *team) until(what string, ok func() bool) {
	m.k.t.Helper()
	require.Eventually(m.k.t, func() bool {
		for i, r := range m.running {
			if r == nil {
				continue
			}
			select {
			case err := <-r.ended:
				r.ended <- err
				m.k.t.Errorf("replica %d has ended: %v", i+1, err)
				return true
			default:
			}
		}
		return ok()
	}, patience, 2*time.Millisecond, what)
	if m.k.t.Failed() {
		m.k.t.FailNow()
	}
}

// master waits for one that leads, and is not one of those.
func (m *team) master(but ...int) int {
	m.k.t.Helper()
	at := -1
	m.until("a master", func() bool {
		at = slices.IndexFunc(m.running, func(r *running) bool { return r != nil && r.Role() == broker.Leading })
		return at >= 0 && !slices.Contains(but, at)
	})
	return at
}

// shard is the broker group as the controller shows it, nil if it does not.
func (m *team) shard() *controllerv1.Shard {
	m.k.t.Helper()
	r, err := m.k.client.Status(m.k.t.Context(), &controllerv1.StatusRequest{})
	if err != nil || len(r.GetShards()) == 0 {
		return nil
	}
	return r.GetShards()[0]
}

// inSync waits until so many replicas are in the SyncStateSet.
func (m *team) inSync(n int) {
	m.k.t.Helper()
	m.until(fmt.Sprintf("%d replicas in sync", n), func() bool { return len(m.shard().GetSyncStateSet()) == n })
}

// put sends messages to the master, trying again as a proxy would, and returns those that were acknowledged.
func (m *team) put(name string, n int) (stored []string) {
	m.k.t.Helper()
	var u *user
	for i := range n {
		body := fmt.Sprintf("%s-%d", name, i)
		m.until("a message is stored", func() bool {
			if u == nil {
				b, err := m.running[m.master()].Attach("test", brokerapi.Events{})
				if err != nil {
					return false
				}
				u = &user{m.k.t, b, m.topic, m.group}
			}
			if err := u.send(body); err != nil {
				u = nil
				return false
			}
			return true
		})
		stored = append(stored, body)
	}
	return stored
}

// take receives all that is there from the master.
func (m *team) take() (bodies []string) {
	m.k.t.Helper()
	m.until("a master that hands out", func() bool {
		b, err := m.running[m.master()].Attach("test", brokerapi.Events{})
		if err != nil {
			return false
		}
		bodies = (&user{m.k.t, b, m.topic, m.group}).take()
		return true
	})
	return bodies
}

// TestReplicas: three replicas; each in turn stops while it leads, another one leads, and everything that was
// acknowledged is there, once.
//
//fault:operator the master of three replicas is stopped, three times in a row => another one leads, nothing acknowledged is lost or doubled
func TestReplicas(t *testing.T) {
	m := newTeam(t, 3, 2)
	for i := range m.options {
		m.begin(i)
	}
	m.inSync(3)
	m.topic, m.group = m.k.define()
	var want []string
	for round := range 4 {
		want = append(want, m.put(fmt.Sprintf("round%d", round), 20)...)
		if round == 3 {
			break
		}
		was := m.master()
		epoch := m.shard().GetEpoch()
		m.end(was)
		require.NotEqual(t, was, m.master())
		require.Greater(t, m.shard().GetEpoch(), epoch)
		m.begin(was)
		m.inSync(3)
		require.NoError(t, m.running[was].Healthy())
	}
	require.ElementsMatch(t, want, m.take())
	for i := range m.running {
		m.end(i)
	}
}

// TestASecondReplicaJoins: a broker that was alone counts another one in as soon as it comes, which takes a new epoch.
func TestASecondReplicaJoins(t *testing.T) {
	m := newTeam(t, 2, 0)
	m.begin(0)
	m.master()
	m.topic, m.group = m.k.define()
	want := m.put("alone", 20)
	m.begin(1)
	m.inSync(2)
	want = append(want, m.put("both", 20)...)
	was := m.master()
	m.end(was)
	require.Equal(t, 1-was, m.master(was))
	require.ElementsMatch(t, want, m.take())
	m.end(1 - was)
	m.begin(1 - was)
	require.Equal(t, 1-was, m.master())
	require.Empty(t, m.take())
	m.end(1 - was)
}

// TestAFollowerBeginsAnew: what comes next for a new replica was deleted at the master: it takes over what is there.
func TestAFollowerBeginsAnew(t *testing.T) {
	m := newTeam(t, 2, 0)
	m.change = func(o *broker.Options) {
		o.Engine.Retention.Bytes, o.Engine.Retention.Interval = 2<<20, 20*time.Millisecond
		o.Engine.CheckpointInterval = 50 * time.Millisecond
	}
	m.begin(0)
	m.master()
	m.topic, m.group = m.k.define()
	big := atomic.Int64{}
	fill := func() {
		u := m.running[m.master()].user(m.topic, m.group)
		for range 40 {
			id := fmt.Sprint("big-", big.Add(1))
			req := &brokerapi.SendRequest{Topic: u.topic, Messages: []brokerapi.Message{{Queue: brokerapi.AnyQueue, Type: brokerapi.Normal, ID: []byte(id), Body: make([]byte, 128<<10)}}}
			_, err := wait(t, func(done func(*brokerapi.SendReply, error)) { u.b.Send(req, done) })
			require.NoError(t, err)
		}
		u.take()
	}
	fill()
	m.until("the first files are deleted", func() bool { return m.running[0].First() > 0 })
	want := m.put("kept", 5)
	m.begin(1)
	m.inSync(2)
	require.Positive(t, m.running[1].First())
	want = append(want, m.put("both", 5)...)
	m.end(0)
	require.Equal(t, 1, m.master(0))
	require.ElementsMatch(t, want, m.take())
	m.end(1)
}

// TestHandOver: an operator makes another replica the master, and metrics tell.
func TestHandOver(t *testing.T) {
	m := newTeam(t, 2, 2)
	metrics := map[uint32]*obs.Metrics{}
	m.change = func(o *broker.Options) {
		all, err := obs.NewMetrics()
		require.NoError(t, err)
		metrics[o.ID], o.Metrics = all, all.Meter("broker")
	}
	shown := func(i int) string {
		w := httptest.NewRecorder()
		metrics[uint32(i+1)].Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		return w.Body.String()
	}
	m.begin(0)
	m.begin(1)
	m.inSync(2)
	m.topic, m.group = m.k.define()
	want := m.put("before", 10)
	was := m.master()
	require.Contains(t, shown(was), `perigee_replica_role{role="leading"} 1`)
	require.Contains(t, shown(was), fmt.Sprintf(`perigee_replica_lag_bytes{replica="%d"} 0`, 2-was))
	require.Contains(t, shown(was), "perigee_sync_state_set 2")
	require.Contains(t, shown(was), `perigee_replica_waits{reason="late_ack"} 0`)
	require.Contains(t, shown(1-was), `perigee_replica_role{role="following"} 1`)
	require.Contains(t, shown(1-was), "perigee_replica_disk_full 0")
	require.NotContains(t, shown(1-was), "perigee_sync_state_set")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h := m.shard()
	_, err := controllerv1.NewShardServiceClient(m.k.conn).Elect(ctx, &controllerv1.ElectRequest{ShardName: h.GetName()})
	require.NoError(t, err)
	require.Equal(t, 1-was, m.master(was))
	require.Contains(t, shown(1-was), `perigee_replica_role{role="leading"} 1`)
	require.Contains(t, shown(was), `perigee_replica_events_total{kind="led"} 1`)
	want = append(want, m.put("after", 10)...)
	m.inSync(2)
	soon, stop := context.WithTimeout(ctx, 5*time.Second) // without a resignation each waits for the end of a lease of 3 s
	defer stop()
	for range 3 { // on streams to the controller on which both have resigned before
		was = m.master()
		_, err = controllerv1.NewShardServiceClient(m.k.conn).Elect(soon, &controllerv1.ElectRequest{ShardName: h.GetName()})
		require.NoError(t, err)
		require.Equal(t, 1-was, m.master(was))
	}
	require.ElementsMatch(t, want, m.take())
	m.end(was)
	m.end(1 - was)
}

// ahead is a clock that is an hour ahead.
type ahead struct{ clock.Clock }

func (a ahead) Wall() int64  { return a.Clock.Wall() + time.Hour.Milliseconds() }
func (a ahead) Lease() int64 { return a.Clock.Lease() + time.Hour.Milliseconds() }

// TestClocksDiffer: a lease that a master gave does not end early when a replica leads whose clock is ahead, and the
// next master goes on with the same.
func TestClocksDiffer(t *testing.T) {
	m := newTeam(t, 2, 2)
	m.change = func(o *broker.Options) {
		o.Engine.Clock = clock.New()
		if o.ID == 2 {
			o.Engine.Clock = ahead{o.Engine.Clock}
		}
	}
	m.begin(0)
	m.until("replica 1 is elected", func() bool { return m.shard().GetMaster() == 1 })
	m.begin(1)
	m.inSync(2)
	m.topic, m.group = m.k.define()
	m.put("leased", 5)
	u := m.running[m.master()].user(m.topic, m.group)
	got := u.lease(5, 10*time.Minute)
	require.Len(t, got, 5)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 3 {
		was := m.master()
		_, err := controllerv1.NewShardServiceClient(m.k.conn).Elect(ctx, &controllerv1.ElectRequest{ShardName: "a"})
		require.NoError(t, err)
		require.Empty(t, m.running[m.master(was)].user(m.topic, m.group).lease(5, time.Minute))
		m.inSync(2)
	}
}

// lease receives without an ack.
func (u *user) lease(n int, invisible time.Duration) (bodies []string) {
	u.t.Helper()
	r, err := wait(u.t, func(done func(*brokerapi.PopReply, error)) {
		u.b.Pop(&brokerapi.PopRequest{Topic: u.topic, Group: u.group, Client: "c", Max: n, Invisible: invisible}, done)
	})
	require.NoError(u.t, err)
	for _, m := range r.Messages {
		bodies = append(bodies, string(m.Body))
	}
	r.Release()
	return bodies
}
