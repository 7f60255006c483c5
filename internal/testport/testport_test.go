package testport

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddr(t *testing.T) {
	met := map[string]bool{}
	for range each / 2 {
		addr := Addr(t)
		require.False(t, met[addr], "given twice")
		met[addr] = true
	}
	ln, err := net.Listen("tcp", Addr(t))
	require.NoError(t, err)
	require.NoError(t, ln.Close())
}
