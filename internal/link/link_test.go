package link

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is a receiver that remembers what it was told.
type call struct {
	Call
	t    testing.TB
	keep bool

	mu     sync.Mutex
	ends   int
	body   []byte
	failed bool
	err    error
	late   [][]byte
	done   chan struct{}
}

func newCall(t testing.TB, class Class, parts ...[]byte) *call {
	c := &call{t: t, done: make(chan struct{})}
	c.Class, c.Parts, c.To = class, parts, c
	return c
}

func (c *call) end() {
	c.ends++
	if c.ends > 1 {
		c.t.Errorf("a call ended %d times", c.ends)
		return
	}
	close(c.done)
}

func (c *call) Answer(body []byte, failed bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.body, c.failed = body, failed
	c.end()
	return c.keep
}

func (c *call) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.end()
}

func (c *call) Late(body []byte, _ bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ends != 1 || c.err == nil || c.late != nil {
		c.t.Error("late before a failure, or twice")
	}
	c.late = append(c.late, body)
}

func (c *call) kind() mqerr.Kind {
	<-c.done
	require.Error(c.t, c.err)
	return mqerr.KindOf(c.err)
}

// handler answers requests with what they held, or keeps those that hold says.
type handler struct {
	hold func(r *Request) bool

	mu     sync.Mutex
	held   []*Request
	events [][]byte
}

func (h *handler) Serve(r *Request) {
	if h.hold != nil && h.hold(r) {
		h.mu.Lock()
		h.held = append(h.held, r)
		h.mu.Unlock()
		return
	}
	r.Reply([][]byte{r.Body}, r.Op == 99, nil)
}

func (h *handler) requests() []*Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*Request{}, h.held...)
}

func (h *handler) Events(dst []byte, limit int) ([]byte, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.events) > 0 && len(h.events[0]) <= limit {
		dst = append(dst, h.events[0]...)
		limit -= len(h.events[0])
		h.events = h.events[1:]
	}
	return dst, len(h.events) > 0
}

func all(*Request) bool { return true }

// pair is a link in memory.
func pair(t testing.TB, h Handler, o Options) (*Client, *Server) {
	near, far := Pipe()
	s := NewServer(far, h, o)
	c := NewClient(near, ClientOptions{Options: o})
	t.Cleanup(func() {
		c.Close()
		c.Wait()
		s.Wait()
	})
	return c, s
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// stop ends a link.
func stop(c *Client, s *Server) {
	c.Close()
	c.Wait()
	s.Wait()
}

// atEnd stops a link when the test ends, however that is.
func atEnd(t testing.TB, c *Client, s *Server) { t.Cleanup(func() { stop(c, s) }) }

func TestSizes(t *testing.T) {
	c, _ := pair(t, &handler{}, Options{})
	for _, n := range []int{
		0, 1, payloadMax - requestHeadSize - 1, payloadMax - requestHeadSize, payloadMax - requestHeadSize + 1,
		payloadMax - replyHeadSize, payloadMax, FrameMax, PacketMax, PacketMax + 1, 4 << 20, MessageMax,
	} {
		want := bytes.Repeat([]byte{byte(n), 2, 3}, n/3+1)[:n]
		k := newCall(t, Send, want[:n/3], nil, want[n/3:])
		c.Start(&k.Call)
		<-k.done
		require.NoError(t, k.err)
		require.True(t, bytes.Equal(want, k.body), "%d bytes", n)
	}
	k := newCall(t, Send, make([]byte, MessageMax), make([]byte, 1))
	c.Start(&k.Call)
	require.Equal(t, mqerr.Invalid, k.kind())
	k = newCall(t, Send, []byte("x"))
	k.Op = 99
	c.Start(&k.Call)
	<-k.done
	require.True(t, k.failed)
}

// Any mixture of sizes, classes, deadlines and cancellations: every call ends once, with the right
// bytes or a reason, and afterwards all credit is back.
func TestMixture(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := rapid.SampledFrom([]int64{1, 1000, 100_000, 1 << 20, 8 << 20}).Draw(rt, "window")
		o := Options{Window: [Classes]int64{window, window, window}}
		h := &handler{hold: func(r *Request) bool { return r.Op == 1 }}
		c, s := pair(t, h, o)
		var calls []*call
		for i := range rapid.IntRange(1, 30).Draw(rt, "calls") {
			n := rapid.SampledFrom([]int{0, 10, 5000, 70_000, 300_000}).Draw(rt, "size")
			k := newCall(t, Class(rapid.IntRange(0, 2).Draw(rt, "class")), fmt.Appendf(nil, "%d:", i), bytes.Repeat([]byte{byte(i)}, n))
			k.Op = uint8(rapid.IntRange(0, 1).Draw(rt, "held"))
			c.Start(&k.Call)
			calls = append(calls, k)
			if rapid.IntRange(0, 4).Draw(rt, "cancel") == 0 {
				c.Abandon(&k.Call, mqerr.New(mqerr.Cancelled, "x"), mqerr.New(mqerr.UnknownOutcome, "x"))
			}
		}
		answer := func() {
			h.mu.Lock()
			held := h.held
			h.held = nil
			h.mu.Unlock()
			for _, r := range held {
				sent := make(chan bool, 1)
				r.Reply([][]byte{r.Body[:len(r.Body)/2], r.Body[len(r.Body)/2:]}, false, func(ok bool) { sent <- ok })
				<-sent
			}
		}
		for i, k := range calls {
			for open := true; open; {
				select {
				case <-k.done:
					open = false
				case <-time.After(time.Millisecond):
					answer()
				}
			}
			if k.err == nil {
				require.True(rt, bytes.HasPrefix(k.body, fmt.Appendf(nil, "%d:", i)))
			}
		}
		idle := func() bool {
			answer()
			c.mu.Lock()
			defer c.mu.Unlock()
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(c.calls)+len(s.requests) > 0 || !c.out.empty() || !s.out.empty() {
				return false
			}
			for i := range Classes {
				if c.held[i] != 0 || s.held[i] != 0 || c.out.waiting[i] != 0 || s.out.waiting[i] != 0 ||
					c.out.credit[i]+s.out.owed[i] != window || s.out.credit[i]+c.out.owed[i] != window {
					return false
				}
			}
			return true
		}
		for end := time.Now().Add(10 * time.Second); !idle(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				rt.Fatalf("client %+v, server %+v", c.out, s.out)
			}
		}
		stop(c, s)
	})
}

// A small request does not wait behind large ones: it is in the next packet.
func TestInterleaving(t *testing.T) {
	var o outbox
	o.credit = [Classes]int64{1 << 40, 1 << 40, 1 << 40}
	o.owedMin = [Classes]int64{1, 1, 1}
	put := func(class Class, id uint32, n int) {
		m := &message{kind: kindRequest, id: id, class: class}
		m.init([][]byte{make([]byte, n)})
		o.put(m)
	}
	for id := range uint32(20) {
		put(Send, id, 4<<20)
	}
	frames := func() (ids []uint32) {
		packet := o.fill(nil, nil)
		require.LessOrEqual(t, len(packet), PacketMax)
		for len(packet) > 0 {
			h, _, rest, err := nextFrame(packet)
			require.NoError(t, err)
			require.LessOrEqual(t, h.size+headSize, FrameMax)
			ids, packet = append(ids, h.id), rest
		}
		return ids
	}
	require.Equal(t, []uint32{0, 1, 2, 3}, frames(), "frames of large messages alternate")
	require.Equal(t, []uint32{4, 5, 6, 7}, frames())
	put(Control, 100, 50)
	put(Pop, 101, 60_000)
	ids := frames()
	require.Contains(t, ids[:2], uint32(100))
	require.Contains(t, ids[:2], uint32(101))
	require.Equal(t, []uint32{0, 1, 2}, ids[2:])
	for id := range uint32(1000) {
		put(Control, 1000+id, 2000)
	}
	for range 5 {
		ids = frames()
		require.Less(t, ids[len(ids)-1], uint32(100), "large ones get on, too")
	}
}

// A large message that is dropped before its first frame gives its credit back; one that has begun
// does not.
func TestDropped(t *testing.T) {
	var o outbox
	const credit = 100 << 20
	o.credit, o.owedMin = [Classes]int64{credit, 0, 0}, [Classes]int64{1, 1, 1}
	var all []*message
	for range 10 {
		m := &message{kind: kindRequest, class: Send}
		m.init([][]byte{make([]byte, 1<<20)})
		o.put(m)
		all = append(all, m)
	}
	o.fill(nil, nil)
	cost := charge(1 << 20)
	require.Equal(t, credit-activeMax*cost, o.credit[Send])
	require.True(t, all[3].started)
	require.False(t, all[4].started)
	o.drop(all[4])
	require.Equal(t, credit-(activeMax-1)*cost, o.credit[Send])
	o.drop(all[3])
	require.Equal(t, credit-(activeMax-1)*cost, o.credit[Send])
	require.Equal(t, 2*cost, o.waiting[Send])
	o.drop(all[9])
	o.drop(all[9])
	require.Equal(t, cost, o.waiting[Send])
}

// Events get through while large and small messages fill every packet.
func TestEventsAmongMessages(t *testing.T) {
	var o outbox
	o.credit, o.owedMin = [Classes]int64{1 << 40, 0, 1 << 40}, [Classes]int64{1, 1, 1}
	put := func(n int) {
		m := &message{kind: kindRequest}
		m.init([][]byte{make([]byte, n)})
		o.put(m)
	}
	for range 20 {
		put(4 << 20)
	}
	for range 1000 {
		put(5000)
	}
	o.event = true
	events := 0
	for range 2 {
		packet := o.fill(nil, func(dst []byte, limit int) ([]byte, bool) {
			events++
			return append(dst, make([]byte, limit)...), false
		})
		require.LessOrEqual(t, len(packet), PacketMax)
	}
	require.Equal(t, 1, events)
}

// Many requests that wait share packets.
func TestCoalescing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n Counters
		near, far := Pipe()
		c := NewClient(near, ClientOptions{Options: Options{Counters: &n}})
		for range 1000 {
			c.Start(&newCall(t, Control, make([]byte, 100)).Call)
		}
		synctest.Wait() // without the server's windows nothing has gone
		require.Equal(t, int64(1), n.PacketsOut.Load())
		s := NewServer(far, &handler{}, Options{})
		atEnd(t, c, s)
		synctest.Wait()
		require.Equal(t, int64(1001), n.FramesOut.Load())
		require.Equal(t, int64(2), n.PacketsOut.Load())
		require.Equal(t, int64(1000), n.Requests.Load())
		require.Equal(t, int64(1000), n.Replies.Load())
		require.Less(t, n.PacketsIn.Load(), int64(200))
		stop(c, s)
	})
}

func TestDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{hold: all}
		var n Counters
		o := Options{Counters: &n, Window: [Classes]int64{1, 0, 0}}
		near, far := Pipe()
		s := NewServer(far, h, Options{Window: o.Window})
		c := NewClient(near, ClientOptions{Options: o})
		atEnd(t, c, s)
		start := time.Now()
		in := func(d time.Duration, class Class) *call {
			k := newCall(t, class, []byte("x"))
			k.Deadline = start.Add(d)
			c.Start(&k.Call)
			return k
		}
		past := in(0, Send)
		require.Equal(t, mqerr.Timeout, past.kind())
		slow, sent, unsent, never := in(9*time.Second, Pop), in(time.Second, Send), in(2*time.Second, Send), in(time.Hour, Control)
		synctest.Wait()
		require.Len(t, h.requests(), 3, "the window of sends is full")
		for _, r := range h.requests() {
			require.False(t, r.Deadline.IsZero())
		}
		require.Equal(t, mqerr.UnknownOutcome, sent.kind())
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, mqerr.Timeout, unsent.kind())
		require.Equal(t, 2*time.Second, time.Since(start))
		require.Equal(t, mqerr.UnknownOutcome, slow.kind())
		require.Equal(t, 9*time.Second, time.Since(start))

		synctest.Wait()
		// The server was told; it answers without a body, and credit is back.
		lost := 0
		for _, r := range h.requests() {
			r.Reply([][]byte{[]byte("answer")}, false, func(ok bool) {
				if !ok {
					lost++
				}
			})
		}
		synctest.Wait()
		require.Equal(t, 2, lost)
		require.NoError(t, never.err)
		require.Equal(t, "answer", string(never.body))
		require.Equal(t, int64(3), n.Expired.Load())
		require.Equal(t, int64(2), n.Late.Load())
		require.Empty(t, slow.late[0])
		start = time.Now()
		soon := in(300*time.Millisecond, Control)
		require.Equal(t, mqerr.UnknownOutcome, soon.kind())
		require.Equal(t, 300*time.Millisecond, time.Since(start), "the keeper was asleep")
		h.requests()[3].Reply(nil, false, nil)
		next := in(time.Hour, Send)
		synctest.Wait()
		require.Len(t, h.requests(), 5)
		h.requests()[4].Reply(nil, false, nil)
		<-next.done
		require.NoError(t, next.err)
		stop(c, s)
	})
}

// An answer that crosses the cancellation arrives as late.
func TestLateAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{hold: all}
		near, far := Pipe()
		slow := &slowPipe{Transport: near, gate: make(chan struct{})}
		s := NewServer(far, h, Options{})
		c := NewClient(slow, ClientOptions{})
		atEnd(t, c, s)
		close(slow.gate)
		k := newCall(t, Pop, []byte("x"))
		c.Start(&k.Call)
		synctest.Wait()
		gate := make(chan struct{})
		slow.set(gate)
		h.requests()[0].Reply([][]byte{[]byte("messages")}, false, func(ok bool) { require.True(t, ok) })
		synctest.Wait()
		c.Abandon(&k.Call, mqerr.New(mqerr.Cancelled, "x"), mqerr.New(mqerr.UnknownOutcome, "x"))
		c.Abandon(&k.Call, mqerr.New(mqerr.Cancelled, "x"), mqerr.New(mqerr.UnknownOutcome, "x"))
		require.Equal(t, mqerr.UnknownOutcome, k.kind())
		close(gate)
		synctest.Wait()
		require.Equal(t, [][]byte{[]byte("messages")}, k.late)
		require.Empty(t, c.calls)
		stop(c, s)
	})
}

// slowPipe lets packets in when its gate is open.
type slowPipe struct {
	Transport
	mu   sync.Mutex
	gate chan struct{}
}

func (s *slowPipe) set(gate chan struct{}) {
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
}

func (s *slowPipe) Recv() ([]byte, error) {
	packet, err := s.Transport.Recv()
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	<-gate
	return packet, err
}

// A large request that is cancelled half way: the server forgets it, the rest is not sent.
func TestCancelHalfSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{}
		near, far := Pipe()
		gate := make(chan struct{}, 1)
		gate <- struct{}{} // for the windows
		s := NewServer(&slowPipe{Transport: far, gate: gate}, h, Options{})
		c := NewClient(near, ClientOptions{})
		atEnd(t, c, s)
		body := make([]byte, 4<<20)
		k := newCall(t, Send, body)
		c.Start(&k.Call)
		small := newCall(t, Send, []byte("small"))
		synctest.Wait()
		c.Start(&small.Call)
		c.Abandon(&k.Call, mqerr.New(mqerr.Cancelled, "x"), mqerr.New(mqerr.UnknownOutcome, "x"))
		clear(body) // not read any more: the race detector would tell
		close(gate)
		synctest.Wait()
		require.NotEqual(t, mqerr.Internal, k.kind())
		require.NoError(t, small.err)
		require.Equal(t, "small", string(small.body))
		require.Empty(t, c.calls)
		require.Empty(t, s.requests)
		require.Less(t, c.n.BytesOut.Load(), int64(1<<20))
		stop(c, s)
	})
}

// A receiver that stands still stops its own class only, and costs a bounded amount.
func TestStuckReceiver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{}
		near, far := Pipe()
		o := Options{Window: [Classes]int64{1 << 20, 1 << 20, 1 << 20}, Waiting: [Classes]int64{1 << 20, 6 * charge(300_000), 1 << 20}}
		s := NewServer(far, h, o)
		c := NewClient(near, ClientOptions{Options: o})
		atEnd(t, c, s)
		var pops []*call
		for range 10 {
			k := newCall(t, Pop, make([]byte, 300_000))
			k.keep = true
			c.Start(&k.Call)
			synctest.Wait()
			pops = append(pops, k)
		}
		ended := func() (n int) {
			for _, k := range pops {
				select {
				case <-k.done:
					n++
				default:
				}
			}
			return n
		}
		require.Equal(t, 4, ended(), "four answers exceed the window")
		require.Len(t, s.requests, 0, "later pops wait at the client")
		refused := newCall(t, Pop, nil)
		c.Start(&refused.Call)
		require.Equal(t, mqerr.Exhausted, refused.kind())
		k := newCall(t, Control, []byte("ack"))
		c.Start(&k.Call)
		synctest.Wait()
		require.Equal(t, "ack", string(k.body))
		for i := 0; ended() < len(pops); i++ {
			c.Return(Pop, 300_000)
			synctest.Wait()
			require.LessOrEqual(t, c.held[Pop], int64(1<<20+301_000))
		}
		for _, k := range pops {
			require.NoError(t, k.err)
		}
		stop(c, s)
	})
}

// When the link breaks every call ends once, and tells whether it can have been seen.
func TestBreak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{hold: all}
		near, far := Pipe()
		var down []error
		o := Options{Window: [Classes]int64{1, 1, 1}}
		s := NewServer(far, h, o)
		var open []*call
		c := NewClient(near, ClientOptions{Options: o, Down: func(err error) {
			for _, k := range open {
				require.Equal(t, 1, k.ends, "Down comes last")
			}
			down = append(down, err)
		}})
		atEnd(t, c, s)
		sent, unsent := newCall(t, Send, []byte("x")), newCall(t, Send, []byte("x"))
		open = []*call{sent, unsent}
		c.Start(&sent.Call)
		c.Start(&unsent.Call)
		synctest.Wait()
		results := make(chan bool, 1)
		s.Close()
		h.requests()[0].Reply(nil, false, func(ok bool) { results <- ok })
		require.False(t, <-results)
		c.Wait()
		s.Wait()
		require.Equal(t, mqerr.UnknownOutcome, sent.kind())
		require.Equal(t, mqerr.Unavailable, unsent.kind())
		require.Len(t, down, 1)
		after := newCall(t, Send, []byte("x"))
		c.Start(&after.Call)
		require.Equal(t, mqerr.Unavailable, after.kind())
	})
}

// A reply that waits when the link breaks is told as not sent.
func TestReplyLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{hold: all}
		near, far := Pipe()
		o := Options{Window: [Classes]int64{0, 1, 0}}
		s := NewServer(far, h, Options{})
		c := NewClient(near, ClientOptions{Options: o})
		atEnd(t, c, s)
		for range 3 {
			k := newCall(t, Pop, []byte("x"))
			k.keep = true
			c.Start(&k.Call)
		}
		synctest.Wait()
		var told []bool
		for _, r := range h.requests() {
			r.Reply([][]byte{make([]byte, 100)}, false, func(ok bool) { told = append(told, ok) })
			synctest.Wait()
		}
		require.Equal(t, []bool{true}, told)
		stop(c, s)
		require.Equal(t, []bool{true, false, false}, told)
	})
}

func TestKeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var n Counters
		near, far := Pipe()
		s := NewServer(far, &handler{}, Options{})
		c := NewClient(near, ClientOptions{Options: Options{Counters: &n}})
		atEnd(t, c, s)
		time.Sleep(time.Hour)
		require.NoError(t, c.Err())
		require.NoError(t, s.Err())
		require.Less(t, n.PacketsOut.Load(), int64(3600/2+10), "an idle link is nearly silent")
		stop(c, s)
	})
	bubble(t, func(t *testing.T) {
		near, far := Pipe()
		c := NewClient(near, ClientOptions{})
		go func() {
			for {
				if _, err := far.Recv(); err != nil {
					return
				}
			}
		}()
		start := time.Now()
		k := newCall(t, Send, []byte("x"))
		c.Start(&k.Call)
		c.Wait()
		require.ErrorContains(t, c.Err(), "nothing came")
		require.LessOrEqual(t, time.Since(start), 5*time.Second)
		require.EqualValues(t, 1, c.n.Cut.Load())
		require.Equal(t, mqerr.Unavailable, k.kind())
	})
}

func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{hold: func(r *Request) bool { return r.Op == 1 }}
		near, far := Pipe()
		o := Options{Window: [Classes]int64{10_000, 0, 0}}
		s := NewServer(far, h, o)
		c := NewClient(near, ClientOptions{Options: o})
		atEnd(t, c, s)
		under, waiting := newCall(t, Send, make([]byte, 20_000)), newCall(t, Send, []byte("x"))
		under.Op = 1
		c.Start(&under.Call)
		c.Start(&waiting.Call)
		synctest.Wait()
		s.Drain()
		synctest.Wait()
		require.Equal(t, mqerr.Draining, waiting.kind())
		require.True(t, c.Draining())
		late := newCall(t, Control, []byte("x"))
		c.Start(&late.Call)
		require.Equal(t, mqerr.Draining, late.kind())
		require.NoError(t, s.Err(), "one is under way")
		h.requests()[0].Reply([][]byte{[]byte("done")}, false, nil)
		<-under.done
		require.Equal(t, "done", string(under.body))
		s.Wait()
		c.Wait()
		require.True(t, mqerr.Is(s.Err(), mqerr.Draining))
	})
}

// A request that crosses the word of the draining is refused, not broken off.
func TestDrainCrossed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{hold: all}
		near, far := Pipe()
		gate := make(chan struct{}, 1)
		gate <- struct{}{} // for the windows
		s := NewServer(far, h, Options{})
		c := NewClient(&slowPipe{Transport: near, gate: gate}, ClientOptions{})
		atEnd(t, c, s)
		synctest.Wait()
		s.Drain()
		synctest.Wait()
		k := newCall(t, Send, []byte("x"))
		c.Start(&k.Call)
		synctest.Wait()
		close(gate)
		require.Equal(t, mqerr.Draining, k.kind())
		require.Empty(t, h.requests())
		c.Wait()
	})
}

// A peer that sends a lot and hears little is told that it is heard.
func TestKeepAliveUnderLoad(t *testing.T) {
	for _, lag := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 7 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) { keepAliveUnderLoad(t, lag) })
	}
}

func keepAliveUnderLoad(t *testing.T, lag time.Duration) {
	bubble(t, func(t *testing.T) {
		h := &handler{hold: all}
		near, far := Pipe()
		o := Options{KeepAlive: 5 * time.Second}
		s := NewServer(far, h, o)
		c := NewClient(lagging{near, lag}, ClientOptions{Options: o})
		atEnd(t, c, s)
		time.Sleep(lag + time.Second)
		k := newCall(t, Pop, []byte("x"))
		c.Start(&k.Call)
		synctest.Wait()
		h.requests()[0].Reply([][]byte{make([]byte, 10<<20)}, false, nil)
		<-k.done
		require.NoError(t, k.err)
		require.Len(t, k.body, 10<<20)
	})
}

// lagging is a transport on which a packet takes its time: a long answer takes many times the silence that ends a link.
type lagging struct {
	Transport
	lag time.Duration
}

func (l lagging) Recv() ([]byte, error) {
	packet, err := l.Transport.Recv()
	time.Sleep(l.lag)
	return packet, err
}

// Events pass, also when there are more than one frame holds, and while a class is stuck.
func TestEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := &handler{}
		near, far := Pipe()
		s := NewServer(far, h, Options{})
		var got []byte
		c := NewClient(near, ClientOptions{Event: func(b []byte) error { got = append(got, b...); return nil }})
		atEnd(t, c, s)
		want := bytes.Repeat([]byte("event."), 30_000)
		for i := 0; i < len(want); i += 6000 {
			h.events = append(h.events, want[i:min(i+6000, len(want))])
		}
		s.Notify()
		synctest.Wait()
		require.True(t, bytes.Equal(want, got))
		stop(c, s)

		near, far = Pipe()
		s = NewServer(far, h, Options{})
		c = NewClient(near, ClientOptions{Event: func([]byte) error { return errors.New("no") }})
		atEnd(t, c, s)
		h.events = append(h.events, want[:10])
		s.Notify()
		c.Wait()
		require.ErrorContains(t, c.Err(), "no")
		s.Wait()
	})
}
