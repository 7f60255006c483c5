package edge

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// errProxyHeader ends a connection whose PROXY header cannot be read.
var errProxyHeader = errors.New("malformed PROXY protocol header")

// proxySignature begins a version 2 header of the PROXY protocol.
var proxySignature = []byte("\r\n\r\n\x00\r\nQUIT\n")

const (
	proxyLineMax = 107     // bytes of a version 1 header with its line end
	proxyBodyMax = 4 << 10 // bytes after the fixed part of a version 2 header
)

// readProxyHeader takes a PROXY protocol header, version 1 or 2, off a connection. The connection it
// returns tells the address named there as that of the caller. It is only for showing: anybody who
// can connect can claim anything.
func readProxyHeader(conn net.Conn) (net.Conn, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return nil, err
	}
	read := readProxyLine
	if first[0] == proxySignature[0] {
		read = readProxyBinary
	}
	remote, err := read(conn)
	if err != nil {
		return nil, err
	}
	return &replayed{Conn: conn, remote: remote}, nil
}

// readProxyLine reads a version 1 header after its P: "PROXY TCP4 src dst srcport dstport\r\n".
func readProxyLine(r io.Reader) (net.Addr, error) {
	line, one := []byte("P"), make([]byte, 1)
	for !bytes.HasSuffix(line, []byte("\r\n")) { // byte by byte: what follows is not ours
		if len(line) >= proxyLineMax {
			return nil, errProxyHeader
		}
		if _, err := io.ReadFull(r, one); err != nil {
			return nil, err
		}
		line = append(line, one[0])
	}
	words := strings.Fields(string(line))
	switch {
	case len(words) >= 2 && words[0] == "PROXY" && words[1] == "UNKNOWN":
		return nil, nil
	case len(words) != 6 || words[0] != "PROXY":
		return nil, errProxyHeader
	}
	ip, err := netip.ParseAddr(words[2])
	if err != nil {
		return nil, errProxyHeader
	}
	port, err := strconv.ParseUint(words[4], 10, 16)
	if err != nil {
		return nil, errProxyHeader
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(port))), nil
}

// readProxyBinary reads a version 2 header after its first byte:
//
//	12  1  version 2 and command: 0x20 of the proxy itself, 0x21 for somebody
//	13  1  family: 0x11 TCP over IPv4, 0x21 TCP over IPv6
//	14  2  bytes that follow, big-endian: source, destination, ports, extensions
func readProxyBinary(r io.Reader) (net.Addr, error) {
	head := make([]byte, 15)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(head[13:]))
	if !bytes.Equal(head[:11], proxySignature[1:]) || head[11]>>4 != 2 || size > proxyBodyMax {
		return nil, errProxyHeader
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	ipSize := map[byte]int{0x11: 4, 0x21: 16}[head[12]]
	if head[11]&0xf == 0 || ipSize == 0 {
		return nil, nil
	}
	if size < 2*ipSize+4 {
		return nil, errProxyHeader
	}
	ip, _ := netip.AddrFromSlice(body[:ipSize])
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, binary.BigEndian.Uint16(body[2*ipSize:]))), nil
}
