//go:build !unix

package edge

import "net"

// peek finds nothing where the system cannot look ahead.
func peek(*net.TCPConn, int) ([]byte, error) { return []byte{0}, nil }
