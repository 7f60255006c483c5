package main

import (
	"net"
	"strings"
)

// hints are lines to paste into another terminal for a first send and receive. program is the path by
// which this one was called, addr the gRPC address that it listens on.
func hints(program, addr string) []string {
	at := ""
	if server := reachable(addr); server != defaultClient().Server {
		at = " --server " + quoted(server)
	}
	return []string{
		"try: " + quoted(program) + " send orders 'hello' --tag new --key order-1" + at,
		"try: " + quoted(program) + " receive orders --group billing" + at,
	}
}

// reachable is an address to dial for one that is listened on: all interfaces become loopback.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

// quoted is a word for a shell.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("/._-+@%:,=", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
