package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// sniffer lets TLS and plain text share a port: the first byte of a TLS connection is 0x16, which
// begins no other protocol that is spoken here. A PROXY protocol header may stand before either.
//
// It runs on a goroutine of the connection, with a deadline that grpc-go has set: a silent stranger
// holds up nobody.
type sniffer struct {
	credentials.TransportCredentials // plain text
	tls                              *tls.Config
	*strangers
}

func newSniffer(config *tls.Config, handshake time.Duration) *sniffer {
	return &sniffer{TransportCredentials: insecure.NewCredentials(), tls: config, strangers: &strangers{patience: handshake}}
}

const tlsHandshakeRecord = 0x16

// looks is how many first bytes of a connection are enough to tell what it speaks.
const looks = 3

// ServerHandshake finds out what a new connection speaks and prepares it for HTTP/2.
func (s *sniffer) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !s.enter(conn, time.Now()) {
		return nil, nil, io.EOF
	}
	defer s.known(conn)
	secure, info, err := s.greet(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.late.Add(1)
	}
	return secure, info, err
}

func (s *sniffer) greet(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, head, err := look(conn)
	if err != nil {
		return nil, nil, err
	}
	if proxyHeaderStarts(head) {
		if conn, err = readProxyHeader(conn); err != nil {
			return nil, nil, err
		}
		if conn, head, err = look(conn); err != nil {
			return nil, nil, err
		}
	}
	if head[0] != tlsHandshakeRecord {
		return s.TransportCredentials.ServerHandshake(conn)
	}
	secure := tls.Server(conn, s.tls)
	if err := secure.HandshakeContext(context.Background()); err != nil { // bounded by the connection's deadline
		return nil, nil, err
	}
	return secure, credentials.TLSInfo{
		State:          secure.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}, nil
}

// Clone returns a copy.
func (s *sniffer) Clone() credentials.TransportCredentials {
	return &sniffer{s.TransportCredentials.Clone(), s.tls.Clone(), s.strangers}
}

// look returns the first bytes of a connection, at least one, and a connection that still has them.
// Where the system can look without reading, that is the connection itself: grpc-go saves a read
// buffer for each connection that is a plain TCP one.
func look(conn net.Conn) (net.Conn, []byte, error) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		head, err := peek(tcp, looks)
		if err != nil || len(head) == looks || head[0] == tlsHandshakeRecord {
			return conn, head, err
		}
	}
	head := make([]byte, looks)
	n, err := io.ReadAtLeast(conn, head, 1)
	if err == nil && n < looks && head[0] != tlsHandshakeRecord {
		var more int
		more, err = io.ReadFull(conn, head[n:])
		n += more
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, io.EOF
	}
	return &replayed{Conn: conn, head: head[:n]}, head[:n], nil
}

// replayed is a connection whose first bytes were read already.
type replayed struct {
	net.Conn
	head   []byte
	remote net.Addr // instead of the connection's own, if not nil
}

// Read returns the bytes that were read already, then those of the connection.
func (r *replayed) Read(p []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// RemoteAddr is the caller's address, as a PROXY header told it if there was one.
func (r *replayed) RemoteAddr() net.Addr {
	if r.remote != nil {
		return r.remote
	}
	return r.Conn.RemoteAddr()
}

// proxyHeaderStarts reports whether a PROXY header may begin so; HTTP/2 begins with PRI.
func proxyHeaderStarts(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PRO")) || bytes.HasPrefix(head, []byte("\r\n\r"))
}
