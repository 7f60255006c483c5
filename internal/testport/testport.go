// Package testport finds loopback addresses for servers that tests start as processes of their own: below the range
// from which the kernel takes the ports of clients, and each test process in a part of its own, one after the
// other, so that no two tests are given the same one a moment apart.
package testport

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// The ports of all test processes, and how many one of them has.
const (
	first = 20000
	parts = 22
	each  = 500
)

var next atomic.Uint32

// Find returns an address on which nobody listens.
func Find() (string, error) {
	base := first + os.Getpid()%parts*each
	for range each {
		addr := fmt.Sprintf("127.0.0.1:%d", base+int(next.Add(1)%each))
		if ln, err := net.Listen("tcp", addr); err == nil {
			return addr, ln.Close()
		}
	}
	return "", errors.New("no free port")
}

// Addr is Find for a test.
func Addr(t testing.TB) string {
	t.Helper()
	addr, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
