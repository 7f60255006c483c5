package simnet

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
)

// pair is two hosts with a stream between them.
type pair struct {
	n      *Network
	a, b   *Host
	sa, sb *Stack
	ln     net.Listener
	ca, cb net.Conn
}

func newPair(t *testing.T) *pair {
	n := New(1)
	p := &pair{n: n, a: n.Host("10.0.0.1"), b: n.Host("10.0.0.2")}
	p.sa, p.sb = p.a.Boot(), p.b.Boot()
	var err error
	p.ln, err = p.sb.Listen("10.0.0.2:80")
	require.NoError(t, err)
	p.ca, err = p.sa.Dial(t.Context(), "10.0.0.2:80")
	require.NoError(t, err)
	p.cb, err = p.ln.Accept()
	require.NoError(t, err)
	return p
}

// in runs a test with a pair in a bubble.
func in(t *testing.T, f func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) { f(t, newPair(t)) })
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	k, err := c.Write([]byte(text))
	require.NoError(t, err)
	require.Equal(t, len(text), k)
}

// hears reads a text and returns how long it took to come.
func hears(t *testing.T, c net.Conn, text string) time.Duration {
	t.Helper()
	began, b := time.Now(), make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, text, string(b))
	return time.Since(began)
}

// silent requires that nothing comes for a while.
func silent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(d)))
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
}

func TestBytesComeInOrderAndLater(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		for range 100 {
			say(t, p.ca, "one")
			say(t, p.ca, "two")
		}
		d := hears(t, p.cb, "onetwo")
		require.GreaterOrEqual(t, d, delayMin)
		require.LessOrEqual(t, d, 2*delayMax)
		for range 99 {
			hears(t, p.cb, "onetwo")
		}
		require.Equal(t, "10.0.0.1", p.cb.RemoteAddr().(*net.TCPAddr).IP.String())
		require.NoError(t, p.ca.Close())
		_, err := p.cb.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = p.cb.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		_, err = p.ca.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

// TestEndThatCannotCome: that the other side has closed is known to who writes when it is to who reads. A client that learns one of
// these alone tries again for ever.
func TestEndThatCannotCome(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		p.n.Cut(p.b, p.a)
		require.NoError(t, p.cb.Close())
		time.Sleep(time.Second)
		say(t, p.ca, "into the dark")
		silent(t, p.ca, time.Hour)
		p.n.Heal(p.b, p.a)
		_, err := p.ca.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = p.ca.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

func TestOneWayCut(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		say(t, p.ca, "before ")
		p.n.Cut(p.a, p.b)
		say(t, p.ca, "later")
		say(t, p.cb, "back")
		require.Less(t, hears(t, p.ca, "back"), time.Millisecond, "the other way is open")
		silent(t, p.cb, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.sb.Dial(ctx, "10.0.0.1:80")
		require.ErrorIs(t, err, context.DeadlineExceeded, "an answer cannot come")
		p.n.Heal(p.a, p.b)
		require.LessOrEqual(t, hears(t, p.cb, "before later"), againMax)
	})
}

func TestSlow(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		p.n.Slow(p.a, p.b, time.Second, 2*time.Second)
		say(t, p.ca, "x")
		d := hears(t, p.cb, "x")
		require.True(t, d >= time.Second && d <= 2*time.Second+delayMax, "%v", d)
		p.n.Slow(p.a, p.b, 0, 0)
		say(t, p.ca, "y")
		require.Less(t, hears(t, p.cb, "y"), time.Millisecond)
	})
}

func TestKillTellsPeers(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		say(t, p.cb, "last words")
		p.sb.Kill()
		hears(t, p.ca, "last words")
		_, err := p.ca.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = p.cb.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = p.ln.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = p.sa.Dial(t.Context(), "10.0.0.2:80")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = p.sb.Listen("10.0.0.2:81")
		require.ErrorIs(t, err, syscall.ENETDOWN)
		ln, err := p.b.Boot().Listen("10.0.0.2:80")
		require.NoError(t, err)
		go func() { _, _ = p.sa.Dial(t.Context(), "10.0.0.2:80") }()
		_, err = ln.Accept()
		require.NoError(t, err)
	})
}

func TestPowerTellsNobody(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		p.sb.Lose()
		silent(t, p.ca, time.Hour)
		say(t, p.ca, "is anybody there")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.sa.Dial(ctx, "10.0.0.2:80")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		p.b.Boot()
		_, err = p.ca.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET, "the machine is back and knows nothing of the stream")
	})
}

func TestFreeze(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		p.b.Freeze()
		say(t, p.ca, "x")
		say(t, p.cb, "y")
		silent(t, p.ca, time.Minute)
		silent(t, p.cb, time.Minute)
		_, err := p.sa.Dial(t.Context(), "10.0.0.2:80")
		require.NoError(t, err, "its kernel answers")
		p.b.Thaw()
		hears(t, p.ca, "y")
		hears(t, p.cb, "x")
	})
}

func TestBreakAndFullBuffer(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		p.n.Cut(p.a, p.b)
		require.NoError(t, p.ca.SetWriteDeadline(time.Now().Add(time.Second)))
		k, err := p.ca.Write(make([]byte, 3*bufferBytes))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, bufferBytes, k)
		p.n.Break(p.a, p.b)
		for _, c := range []net.Conn{p.ca, p.cb} {
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, syscall.ECONNRESET)
		}
	})
}

// TestGRPC makes calls over a way that is cut for a while, and over one that stays cut.
func TestGRPC(t *testing.T) {
	in(t, func(t *testing.T, p *pair) {
		g := grpc.NewServer()
		healthv1.RegisterHealthServer(g, health.NewServer())
		go func() { _ = g.Serve(p.ln) }()
		defer g.Stop()
		cc, err := grpc.NewClient("passthrough:///10.0.0.2:80", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(p.sa.Dial),
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}))
		require.NoError(t, err)
		defer cc.Close()
		call := func(d time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			_, err := healthv1.NewHealthClient(cc).Check(ctx, &healthv1.HealthCheckRequest{})
			return err
		}
		require.NoError(t, call(time.Second))
		p.n.Cut(p.b, p.a)
		require.Error(t, call(time.Second))
		time.AfterFunc(time.Second, func() { p.n.Heal(p.b, p.a) })
		require.NoError(t, call(3*time.Second))
		p.n.Cut(p.b, p.a)
		began := time.Now()
		require.Error(t, call(time.Hour), "no sign of life")
		require.Less(t, time.Since(began), 20*time.Second)
	})
}
