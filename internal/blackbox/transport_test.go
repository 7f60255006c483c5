package blackbox

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/perigee-mq/perigee/internal/testseed"
)

// stranger opens a connection, lets talk speak, and returns how long the server kept it.
func stranger(t *testing.T, addr string, talk func(net.Conn)) time.Duration {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	var talking sync.WaitGroup
	talking.Go(func() { talk(conn) })
	defer talking.Wait()
	_ = conn.SetReadDeadline(began.Add(25 * time.Second))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open after 25 s")
	}
	_ = conn.Close() // ends a talk that writes slowly
	return time.Since(began)
}

func says(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// clientHello is how a TLS connection begins.
func clientHello() []byte {
	a, b := net.Pipe()
	go func() {
		conn := tls.Client(a, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		_ = conn.Handshake()
	}()
	hello := make([]byte, 4096)
	n, _ := bufio.NewReader(b).Read(hello)
	_ = b.Close()
	_ = a.Close()
	return hello[:n]
}

// slowly writes a byte every 100 ms until the other side has enough.
func slowly(b []byte) func(net.Conn) {
	return func(c net.Conn) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := range b {
			if _, err := c.Write(b[i : i+1]); err != nil {
				return
			}
			<-tick.C
		}
	}
}

// TestStrangers: connections that speak anything but gRPC, or nothing, are turned away after a while.
// Others are served as if they were not there.
func TestStrangers(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	d := sharedDev(t)
	c := connect(t, d.grpc)
	p := newPlace(t, c)
	p.put(1)
	hello := clientHello()
	if len(hello) < 100 || hello[0] != 0x16 {
		t.Fatalf("no client hello: %x", hello)
	}
	noise := func(first byte) string {
		b := make([]byte, 4096)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0] = first
		return string(b)
	}
	talks := map[string]func(net.Conn){
		"silence":                func(net.Conn) {},
		"one byte of TLS":        says("\x16"),
		"a cut client hello":     says(string(hello[:50])),
		"a slow client hello":    slowly(hello),
		"TLS and then silence":   says(string(hello)),
		"TLS noise":              says(noise(0x16)),
		"TLS 4 GiB":              says("\x16\x03\x01\xff\xff" + strings.Repeat("x", 100)),
		"HTTP/1 GET":             says("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"HTTP/1 POST":            says("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"),
		"HTTP/1 upgrade":         says("GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"),
		"noise":                  says(noise(0x42)),
		"zero bytes":             says(strings.Repeat("\x00", 4096)),
		"one letter":             says("P"),
		"half a preface":         says("PRI * HTTP/2.0\r\n"),
		"a slow preface":         slowly([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\x00", 300))),
		"preface and noise":      says("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + noise(0)),
		"PROXY header, no end":   says("PROXY TCP4 127.0.0.1"),
		"PROXY header, garbage":  says("PROXY GARBAGE\r\n"),
		"PROXY header and noise": says("PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n" + noise(1)),
		"PROXY version 2, cut":   says("\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff"),
		"an old protocol":        says("\x00\x00\x01\x00\x00\x00\x00\xfc{\"code\":10,\"language\":\"JAVA\"}"),
	}
	ctx, stop := context.WithCancel(t.Context())
	var slowest time.Duration
	watching := make(chan bool)
	go func() {
		defer close(watching)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			a := c.do(t.Context(), "QueryRoute", request("QueryRoute", p.topic, ""))
			a.is(t, "OK")
			slowest = max(slowest, a.took)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	var wg sync.WaitGroup
	for name, talk := range talks {
		for range 10 {
			wg.Go(func() {
				if kept := stranger(t, d.grpc, talk); kept > 15*time.Second {
					t.Errorf("%s: the connection was kept for %v", name, kept)
				}
			})
		}
	}
	wg.Wait()
	stop()
	<-watching
	t.Logf("the slowest of the other calls took %v", slowest)
	if slowest > 2*time.Second {
		t.Errorf("a call of another client took %v", slowest)
	}
	p.finish(p.take(1))
}

// TestTLS: TLS clients of every current version are served on the same port, and old ones refused.
func TestTLS(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	p := newPlace(t, connect(t, d.grpc))
	secure := func(c *tls.Config) *client {
		c.InsecureSkipVerify = true
		return connect(t, d.grpc, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	}
	for name, config := range map[string]*tls.Config{
		"TLS 1.2": {MaxVersion: tls.VersionTLS12}, "TLS 1.3": {MinVersion: tls.VersionTLS13}, "another name": {ServerName: "example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			p.send(t.Context(), secure(config), p.message("secret")).is(t, "OK")
		})
	}
	if conn, err := tls.Dial("tcp", d.grpc, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.1 is served")
	}
	// A check of the certificate fails the call, not the server.
	strict := connect(t, d.grpc, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{})))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	strict.do(ctx, "QueryRoute", request("QueryRoute", p.topic, "")).is(t, "Unavailable|DeadlineExceeded")
}

// TestStrangersInside: the ports that only our own processes use are as hard to disturb.
func TestStrangersInside(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	k := newCluster(t)
	p := newPlace(t, k.client(0))
	p.put(4)
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return string(b)
	}
	talks := []string{
		random(4096), "\x16\x03\x01\xff\xff" + random(100), "GET / HTTP/1.1\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + random(1000),
		strings.Repeat("\x00", 1000), "\xff\xff\xff\xff\xff\xff\xff\xff",
	}
	for _, addr := range []string{k.ctlAddr, k.brokerAddr["a"], k.proxies[0].http} {
		for _, talk := range talks {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			says(talk)(conn)
			_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // long enough to be read
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}
	p.finish(p.take(4))
	other := newPlace(t, k.client(1)) // the controller works
	other.put(4)
}
