package engine

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
)

// millions is how many messages TestMillions has; TEST_MILLIONS=10000000 is the full size, which needs 5 GiB in
// TMPDIR.
func millions(t *testing.T) int {
	n := 100_000 / raceSlows
	if s := os.Getenv("TEST_MILLIONS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	return n / 10 * 10
}

// millionsBench is an engine on disk with one topic of n small messages.
type millionsBench struct {
	*bench
	dir    string
	n      int
	worst  atomic.Int64 // ns, the longest that somebody who asks for nothing waited for the writer
	popped map[string][]brokerapi.Handle
}

// phase does one thing while a bystander looks at how long the writer keeps it waiting, and prints that.
func (m *millionsBench) phase(name string, do func()) {
	m.t.Helper()
	m.worst.Store(0)
	quit := make(chan struct{})
	var probe sync.WaitGroup
	e := m.engine
	probe.Go(func() {
		for {
			select {
			case <-quit:
				return
			default:
			}
			began := time.Now()
			if e.call(m.t.Context(), func(*writer) {}) != nil {
				return
			}
			m.worst.Store(max(m.worst.Load(), time.Since(began).Nanoseconds()))
			time.Sleep(time.Millisecond) // between two looks, not to wait for anything
		}
	})
	began := time.Now()
	do()
	took := time.Since(began)
	close(quit)
	probe.Wait()
	m.t.Logf("%-44s %10v, longest wait for the writer %8v, heap %4d MiB", name, took.Round(time.Millisecond),
		time.Duration(m.worst.Load()).Round(100*time.Microsecond), m.heap()>>20)
}

func (m *millionsBench) heap() uint64 {
	if m.n > 1_000_000 {
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapInuse
}

const topicMany record.TopicID = 9

func (m *millionsBench) fill() {
	const batch = 1000
	waits := make(chan struct{}, 4)
	var failed atomic.Value
	for i := 0; i < m.n; i += batch {
		req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicMany)}
		for range min(batch, m.n-i) {
			req.Messages = append(req.Messages, message("0123456789abcdef"))
		}
		waits <- struct{}{}
		m.proxy.Send(req, func(_ *brokerapi.SendReply, err error) {
			if err != nil {
				failed.Store(err)
			}
			<-waits
		})
	}
	for range cap(waits) {
		waits <- struct{}{}
	}
	require.Nil(m.t, failed.Load())
}

// receive leases up to n messages for a client and keeps the handles; it returns how many there were, and how
// many of them had been handed out before.
func (m *millionsBench) receive(g record.GroupID, client string, n int, session bool) (all, again int) {
	m.t.Helper()
	for all < n {
		req := &brokerapi.PopRequest{
			Topic: brokerapi.TopicID(topicMany), Group: brokerapi.GroupID(g), Client: client, Max: min(popMax, n-all), Invisible: time.Minute, Session: session,
		}
		c := make(chan *brokerapi.PopReply, 1) // a cold disk may take longer than wait does
		m.proxy.Pop(req, func(r *brokerapi.PopReply, err error) {
			if err != nil {
				m.t.Error(err)
			}
			c <- r
		})
		r := <-c
		require.NotNil(m.t, r)
		for i := range r.Messages {
			d := &r.Messages[i]
			if d.Attempt > 1 {
				again++
			}
			m.popped[client] = append(m.popped[client], brokerapi.Handle{Queue: d.Queue, Offset: d.Offset, Lease: d.Lease, Epoch: d.Epoch})
		}
		all += len(r.Messages)
		none := len(r.Messages) == 0
		r.Release()
		if none {
			break
		}
	}
	return all, again
}

func (m *millionsBench) ackAll(g record.GroupID, client string) {
	m.t.Helper()
	hs := m.popped[client]
	delete(m.popped, client)
	for len(hs) > 0 {
		n := min(len(hs), 1024)
		req := &brokerapi.AckRequest{Topic: brokerapi.TopicID(topicMany), Group: brokerapi.GroupID(g), Handles: hs[:n]}
		hs = hs[n:]
		r, err := wait(m.t, func(done func(*brokerapi.AckReply, error)) { m.proxy.Ack(req, done) })
		require.NoError(m.t, err)
		for _, err := range r.Errors {
			require.NoError(m.t, err)
		}
	}
}

// figures are what describe says of a group: ready, in flight, waiting.
func (m *millionsBench) figures(g record.GroupID) [3]int {
	m.t.Helper()
	qs, err := m.proxy.DescribeGroup(m.t.Context(), brokerapi.TopicID(topicMany), brokerapi.GroupID(g))
	require.NoError(m.t, err)
	var sum [3]int
	for _, q := range qs {
		sum[0] += int(q.Ready)
		sum[1] += int(q.InFlight)
		sum[2] += int(q.Waiting)
	}
	return sum
}

func (m *millionsBench) checkpoint() {
	m.t.Helper()
	require.NoError(m.t, m.engine.checkpointBehind(m.t.Context(), m.engine.log.Written()))
}

func (m *millionsBench) open() {
	m.t.Helper()
	st, err := store.Open(store.Options{FS: vfs.OS, Dir: m.dir, SegmentBytes: 256 << 20})
	require.NoError(m.t, err)
	o := m.opt
	o.Store, o.Clock = st, m.clock
	e, err := Open(o)
	require.NoError(m.t, err)
	m.epoch = max(m.epoch, e.views.epoch) + 1
	require.NoError(m.t, e.Start(Identity{Epoch: m.epoch, Incarnation: uint64(m.epoch)}))
	m.store, m.engine = st, e
	m.proxy, err = e.Attach("test", brokerapi.Events{})
	require.NoError(m.t, err)
}

// restart kills the engine, opens it again and prints how long that took.
func (m *millionsBench) restart(name string) {
	m.t.Helper()
	m.kill()
	began := time.Now()
	m.open()
	m.t.Logf("%-44s %10v, heap %4d MiB", name, time.Since(began).Round(time.Millisecond), m.heap()>>20)
}

func (m *millionsBench) groups(of ...group.Definition) {
	m.t.Helper()
	v := uint64(m.clock.Wall())
	m.clock.advance(time.Millisecond)
	require.NoError(m.t, m.engine.Define(m.t.Context(), &Definitions{
		Topics: []topic.Definition{{ID: topicMany, Name: "many", Queues: 8, Flush: topic.FlushAsync, Version: 1}},
		Groups: of, Full: true, Version: v,
	}))
}

// TestMillions lets a group have very many messages ready, then leased, and does everything with them that costs
// more the more there are: what comes out is exact, and what it costs is printed.
func TestMillions(t *testing.T) {
	dir := t.TempDir() // goes after the engine has ended
	m := &millionsBench{
		bench: newBench(t, Options{CheckpointBytes: 1 << 50, CheckpointInterval: 1000 * time.Hour}), dir: dir, n: millions(t), popped: map[string][]brokerapi.Handle{},
	}
	n := m.n
	m.open()
	a := group.Definition{ID: groupA, Name: "a", MaxAttempts: 17, Version: 1}
	b := group.Definition{ID: groupB, Name: "b", MaxAttempts: 17, Version: 1}
	m.groups(a, b)
	describe := func(g record.GroupID, want [3]int) {
		t.Helper()
		m.phase("  describe", func() { require.Equal(t, want, m.figures(g)) })
	}
	m.phase(fmt.Sprint("send ", n), m.fill)
	describe(groupA, [3]int{n, 0, 0})

	tenth := n / 10
	m.phase("lease all, a tenth to a session", func() {
		for i := range 9 {
			all, _ := m.receive(groupA, fmt.Sprint("c", i), tenth, false)
			require.Equal(t, tenth, all)
			if i > 0 {
				delete(m.popped, fmt.Sprint("c", i))
			}
		}
		all, _ := m.receive(groupA, "session", 2*tenth, true)
		require.Equal(t, tenth, all)
		delete(m.popped, "session")
	})
	describe(groupA, [3]int{0, n, 0})
	m.phase("  metrics snapshot", func() {
		s, err := m.engine.Snapshot(t.Context(), 1000)
		require.NoError(t, err)
		require.EqualValues(t, n, s.InFlight)
	})
	m.phase("  ack a tenth", func() { m.ackAll(groupA, "c0") })
	describe(groupA, [3]int{0, n - tenth, 0})
	m.phase("  session of a tenth ends", func() {
		require.NoError(t, m.proxy.EndSession(t.Context(), "session"))
		m.clock.advance(2 * time.Second)
		require.Equal(t, [3]int{tenth, n - 2*tenth, 0}, m.figures(groupA))
	})

	m.restart("start by the log")
	describe(groupA, [3]int{tenth, n - 2*tenth, 0})
	m.phase("  checkpoint", m.checkpoint)
	m.restart("start by a checkpoint")
	describe(groupA, [3]int{tenth, n - 2*tenth, 0})

	if n > 16*heldMax { // each of 8 queues
		m.phase("nothing old may go: too much is leased", func() {
			_, err := m.engine.Retain(t.Context(), retain.Limits{Age: time.Millisecond})
			require.True(t, mqerr.Is(err, mqerr.Exhausted), "%v", err)
			require.Equal(t, [3]int{tenth, n - 2*tenth, 0}, m.figures(groupA))
		})
	}
	m.phase("all other leases end at once", func() {
		m.clock.advance(2 * time.Minute)
		require.Equal(t, [3]int{n - tenth, 0, 0}, m.figures(groupA))
	})
	m.phase("  redeliver a tenth", func() {
		all, again := m.receive(groupA, "again", tenth, false)
		require.Equal(t, [2]int{tenth, tenth}, [2]int{all, again})
	})
	m.phase("  ack these", func() { m.ackAll(groupA, "again") })
	describe(groupA, [3]int{n - 2*tenth, 0, 0})
	m.phase("reset to the begin gives up all", func() {
		_, err := m.proxy.Reset(t.Context(), &brokerapi.ResetRequest{Topic: brokerapi.TopicID(topicMany), Group: brokerapi.GroupID(groupA), To: brokerapi.ResetBegin})
		require.NoError(t, err)
	})
	describe(groupA, [3]int{n, 0, 0})

	m.phase("another group leases all", func() {
		all, _ := m.receive(groupB, "other", n+1, false)
		require.Equal(t, n, all)
		delete(m.popped, "other")
	})
	m.phase("  it is deleted", func() { m.groups(a) })
	m.phase("  the rest", func() {
		s, err := m.engine.Views(t.Context())
		require.NoError(t, err)
		require.Zero(t, s.InFlight)
	})
	if data, err := os.ReadFile("/proc/self/status"); err == nil {
		_, peak, _ := strings.Cut(string(data), "VmHWM:")
		peak, _, _ = strings.Cut(peak, "\n")
		t.Logf("most memory of the process, with mapped files: %s", strings.TrimSpace(peak))
	}
}
