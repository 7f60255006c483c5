//go:build unix

package edge

import (
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// peek returns up to n first bytes of a connection without taking them, at least one.
func peek(conn *net.TCPConn, n int) ([]byte, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, n)
	var got int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		got, _, failed = unix.Recvfrom(int(fd), buf, unix.MSG_PEEK)
		return failed != unix.EAGAIN && failed != unix.EINTR
	})
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return nil, failed
	case got == 0:
		return nil, io.EOF
	}
	return buf[:got], nil
}
