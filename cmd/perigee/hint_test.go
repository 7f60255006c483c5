package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHints(t *testing.T) {
	for _, c := range []struct{ program, addr, first string }{
		{"bin/perigee", "127.0.0.1:8081", "try: bin/perigee send orders 'hello' --tag new --key order-1"},
		{"perigee", "127.0.0.1:9", "try: perigee send orders 'hello' --tag new --key order-1 --server 127.0.0.1:9"},
		{"perigee", "[::]:8081", "try: perigee send orders 'hello' --tag new --key order-1"},
		{"perigee", "0.0.0.0:9", "try: perigee send orders 'hello' --tag new --key order-1 --server 127.0.0.1:9"},
		{"perigee", "[fd00::1]:8081", "try: perigee send orders 'hello' --tag new --key order-1 --server '[fd00::1]:8081'"},
		{"/my disk/perigee", "127.0.0.1:8081", "try: '/my disk/perigee' send orders 'hello' --tag new --key order-1"},
	} {
		lines := hints(c.program, c.addr)
		require.Len(t, lines, 2)
		require.Equal(t, c.first, lines[0])
		require.Contains(t, lines[1], " receive orders --group billing")
	}
}

// TestQuoted asks a real shell.
func TestQuoted(t *testing.T) {
	for _, word := range []string{"plain", "/a b/c", "it's", "", "$HOME", "a;b", "[::1]:8081", "`x`", "*"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quoted(word)).Output()
		require.NoError(t, err)
		require.Equal(t, word, string(out))
	}
}
