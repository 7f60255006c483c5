package raft

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines is a log that a test reads while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestStrangersAtTheRaftPort: what strangers send to the port for other controllers is no warning, let alone an error.
func TestStrangersAtTheRaftPort(t *testing.T) {
	var out lines
	leads := make(chan bool, 4)
	n, err := Open(Options{
		Dir: t.TempDir(), ID: "c1", Addr: "127.0.0.1:0", Release: "test", Leading: func(yes bool) { leads <- yes },
		Log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	select {
	case <-leads:
	case <-time.After(20 * time.Second):
		t.Fatal("no leader")
	}
	addr, _ := n.raft.LeaderWithID()
	for _, said := range []string{"GET / HTTP/1.1\r\n\r\n", "\x00", "\x01\xff\xff\xff\xff", "\x16\x03\x01", greetingMagic, greetingMagic + "\x01\xff\xff{", greetingMagic + "\x01\x00\x02{]"} {
		conn, err := net.Dial("tcp", string(addr))
		require.NoError(t, err)
		_, err = io.WriteString(conn, said)
		require.NoError(t, err)
		_ = conn.(*net.TCPConn).CloseWrite() // it may be closed already
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, _ = io.Copy(io.Discard, conn) // until it is closed: the line is written before
		require.NoError(t, conn.Close())
	}
	require.Contains(t, out.String(), "a connection at the raft port was refused", "the test says nothing strange")
	require.NotContains(t, out.String(), "level=ERROR")
	require.NotContains(t, out.String(), "level=WARN")
}
