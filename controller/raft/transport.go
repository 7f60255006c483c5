package raft

import (
	"net"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	hraft "github.com/hashicorp/raft"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

const (
	peerConnections = 3
	peerTimeout     = 10 * time.Second
)

// closer is what every transport of the library can do.
type closer interface {
	hraft.Transport
	hraft.WithClose
}

// newTransport returns the transport and this node's address on it.
func newTransport(o Options, logger hclog.Logger) (hraft.ServerAddress, closer, error) {
	if o.Addr == "" {
		addr, t := hraft.NewInmemTransport(hraft.ServerAddress("local:" + o.ID))
		return addr, t, nil
	}
	ln, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return "", nil, mqerr.New(mqerr.Invalid, "raft address %s: %w", o.Addr, err)
	}
	t := hraft.NewNetworkTransportWithLogger(tcp{ln}, peerConnections, peerTimeout, peerLogger{logger})
	return hraft.ServerAddress(ln.Addr().String()), t, nil
}

// tcp is a plain stream layer.
type tcp struct{ net.Listener }

// Dial connects to another node.
func (tcp) Dial(addr hraft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(addr), timeout)
}
