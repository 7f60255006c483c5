package edge

import (
	"bytes"
	"net"
	"testing"
)

func FuzzProxyHeader(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 192.0.2.2 4711 8081\r\nrest"))
	f.Add([]byte("PROXY UNKNOWN\r\nrest"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x12\x67\x1f\x91rest"))
	f.Add([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x24" + string(make([]byte, 36)) + "rest"))
	f.Fuzz(func(t *testing.T, b []byte) {
		conn, err := readProxyHeader(bytesConn{r: bytes.NewReader(b)})
		if err != nil {
			return
		}
		if a := conn.RemoteAddr(); a != nil && a.String() == "" {
			t.Error("an address without text")
		}
		rest := make([]byte, len(b)+1)
		n, _ := conn.Read(rest)
		if !bytes.HasSuffix(b, rest[:n]) {
			t.Errorf("what follows the header is %q", rest[:n])
		}
	})
}

// bytesConn is a connection that only has what was sent to it.
type bytesConn struct {
	net.Conn
	r *bytes.Reader
}

func (c bytesConn) Read(p []byte) (int, error) { return c.r.Read(p) }
func (c bytesConn) RemoteAddr() net.Addr       { return nil }
