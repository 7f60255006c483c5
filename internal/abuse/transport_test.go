package abuse

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// TestManyConnections: idle ones cost what they cost, and the bound refuses those beyond.
func TestManyConnections(t *testing.T) {
	n := size(500, 10_000)
	s := serve(t, 1024, "--max-connections", "10100")
	good := s.client("good")
	s.served(good)
	before := s.below("before")
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := s.open()
		require.NoError(t, err)
		defer c.Close()
		conns[i] = c
	}
	until(t, "all connections are open", func() bool { return s.gauge("perigee_proxy_connections") >= float64(n) })
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, err := io.ReadFull(c, make([]byte, 9))
		require.NoError(t, err, "a connection is not served")
	}
	s.served(good)
	t.Logf("%d connections: %d bytes each", n, (s.below("all open")-before)/int64(n))
	for _, c := range conns {
		_ = c.Close()
	}
	until(t, "all connections are gone", func() bool { return s.gauge("perigee_proxy_connections") < 10 })
	s.below("all gone")
}

// TestConnectionsComeAndGo: at full rate, and nothing of them stays.
func TestConnectionsComeAndGo(t *testing.T) {
	s := serve(t, 512)
	good := s.client("good")
	s.served(good)
	goroutines := s.gauge("go_goroutines")
	n := 0
	for end := time.Now().Add(time.Duration(size(1, 20)) * time.Second); time.Now().Before(end); n++ {
		c, err := net.Dial("tcp", s.grpc)
		require.NoError(t, err)
		switch n % 4 {
		case 1:
			_, _ = c.Write([]byte(preface))
		case 2:
			_, _ = c.Write(append([]byte(preface), frame(typeSetting, 0, 0, nil)...))
		case 3:
			_, _ = c.Write(append(append([]byte(preface), frame(typeSetting, 0, 0, nil)...), request(1, "ReceiveMessage")...))
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	s.served(good)
	t.Logf("%d connections came and went", n)
	until(t, "nothing of them is left", func() bool {
		return s.gauge("perigee_proxy_connections") < 10 && s.gauge("go_goroutines") < goroutines+50
	})
	s.below("after")
}

// TestSlowTalkers: half handshakes and half frames end with the time for a handshake, and hold up nobody.
func TestSlowTalkers(t *testing.T) {
	s := serve(t, 512)
	good := s.client("good")
	s.served(good)
	hello := firstBytes(t)
	var conns []net.Conn
	for i := range size(100, 4000) {
		c, err := net.Dial("tcp", s.grpc)
		require.NoError(t, err)
		defer c.Close()
		conns = append(conns, c)
		switch i % 4 {
		case 0: // nothing at all
		case 1:
			_, err = c.Write(hello[:len(hello)/2])
		case 2:
			_, err = c.Write([]byte(preface[:10]))
		case 3:
			_, err = c.Write(append([]byte(preface), frame(typeHeaders, endHeaders, 1, headers(":method", "POST"))[:12]...))
		}
		require.NoError(t, err)
	}
	s.served(good)
	s.below("while they talk")
	if !full {
		return // the time for a handshake is 10 s
	}
	until(t, "they are cut off", func() bool { return s.gauge("perigee_proxy_connections") <= float64(len(conns)/4+5) })
	s.served(good)
	s.below("afterwards")
}

// firstBytes is how a TLS client begins.
func firstBytes(t *testing.T) []byte {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12}).Handshake()
	}()
	b := make([]byte, 4096)
	n, err := far.Read(b)
	require.NoError(t, err)
	_ = near.Close()
	_ = far.Close()
	return b[:n]
}

// TestRapidReset: calls that are begun and reset at once pile up nowhere.
func TestRapidReset(t *testing.T) {
	s := serve(t, 512)
	good := s.client("good")
	s.served(good)
	most := s.watch()
	for range size(2, 20) {
		c, err := s.open()
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, c) }()
		_ = c.SetWriteDeadline(time.Now().Add(30 * time.Second))
		cancel := binary.BigEndian.AppendUint32(nil, 8)
		for stream := uint32(1); stream < uint32(size(4000, 60_000)); stream += 2 {
			if _, err := c.Write(append(request(stream, "ReceiveMessage"), frame(typeReset, 0, stream, cancel)...)); err != nil {
				break // it had enough
			}
		}
		defer c.Close()
	}
	s.served(good)
	peak := most()
	require.Less(t, peak.anonymous, float64(s.limit))
	require.Less(t, peak.live, float64(s.limit)/2, "the rest is garbage")
	s.below("after the resets")
	until(t, "no call is left", func() bool { return s.gauge("perigee_proxy_calls_open") < 5 })
	require.Less(t, s.gauge("go_goroutines"), 500.0)
}

// TestPingFlood: who pings without end is cut off, or answered within bounds.
func TestPingFlood(t *testing.T) {
	s := serve(t, 512)
	good := s.client("good")
	s.served(good)
	c, err := s.open()
	require.NoError(t, err)
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	ping := frame(typePing, 0, 0, make([]byte, 8))
	flood := []byte(strings.Repeat(string(ping), 1000))
	sent := 0
	for range size(200, 5000) {
		if _, err := c.Write(flood); err != nil { // nobody reads the answers: the server must not keep them
			break
		}
		sent += 1000
	}
	t.Logf("%d pings were taken", sent)
	s.served(good)
	s.below("after the pings")
}

// TestGiantHeaders: a head that is too large is refused, also when it comes in many small pieces.
func TestGiantHeaders(t *testing.T) {
	s := serve(t, 512)
	good := s.client("good")
	s.served(good)
	ctx := metadata.AppendToOutgoingContext(good.ctx, "x-large", strings.Repeat("x", 1<<20))
	_, err := good.QueryRoute(ctx, &rmqv2.QueryRouteRequest{})
	require.Error(t, err)
	require.NotEqual(t, codes.OK, status.Code(err))
	for range size(20, 1000) {
		c, err := s.open()
		require.NoError(t, err)
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		_, _ = c.Write(frame(typeHeaders, 0, 1, headers("x-piece", strings.Repeat("y", 100))))
		for range 2000 { // CONTINUATION without an end
			if _, err := c.Write(frame(9, 0, 1, headers("x-piece", strings.Repeat("z", 100)))); err != nil {
				break
			}
		}
		_ = c.Close()
	}
	s.served(s.client("good again"))
	s.below("after the heads")
}
