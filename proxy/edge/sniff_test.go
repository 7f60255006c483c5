package edge

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"
)

// FuzzSniff gives any first bytes, in pieces of any size, to what finds out what a connection speaks. A plain
// connection must come out with every byte that was not part of a PROXY header.
func FuzzSniff(f *testing.F) {
	certs, err := newCertificates(Options{}.withDefaults())
	if err != nil {
		f.Fatal(err)
	}
	for _, first := range []string{
		"", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x00\x05hello", "GET / HTTP/1.1\r\n\r\n",
		"PROXY TCP4 192.0.2.1 192.0.2.2 4711 8081\r\nPRI * HTTP/2.0", "PROXY UNKNOWN\r\n\x16\x03\x01", "PROXY UNKNOWN\r\nPROXY UNKNOWN\r\nx",
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x12\x67\x1f\x91PRI", "\r\n\rx",
	} {
		f.Add([]byte(first), 1)
		f.Add([]byte(first), 1000)
	}
	s := newSniffer(certs.config(), time.Second)
	f.Fuzz(func(t *testing.T, first []byte, piece int) {
		conn, info, err := s.greet(&scripted{r: bytes.NewReader(first), piece: min(max(piece, 1), 1<<16)})
		if err != nil {
			if conn != nil || info != nil {
				t.Error("a connection and an error")
			}
			return
		}
		if _, ok := conn.(*tls.Conn); ok {
			return
		}
		rest, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(first, rest) {
			t.Fatalf("%q comes out of %q", rest, first)
		}
		if head := first[:len(first)-len(rest)]; len(head) > 0 && !proxyHeaderStarts(head) {
			t.Fatalf("%q is lost of %q", head, first)
		}
		if len(rest) == 0 || rest[0] == tlsHandshakeRecord {
			t.Fatalf("%q is taken for plain text", rest)
		}
	})
}

// scripted is a connection whose bytes come in pieces; what is written to it is lost.
type scripted struct {
	net.Conn
	r     *bytes.Reader
	piece int
}

func (s *scripted) Read(p []byte) (int, error)       { return s.r.Read(p[:min(len(p), s.piece)]) }
func (s *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) RemoteAddr() net.Addr             { return nil }
func (s *scripted) LocalAddr() net.Addr              { return nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
