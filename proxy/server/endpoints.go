package server

import (
	"net"
	"net/netip"
	"strconv"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// endpoints returns the content of the Endpoints that a reply should name: what the client has named,
// unchanged, because it can be reached there and clients compare the text; the advertised address if
// it named none.
func (s *Server) endpoints(c call.Info, asked *wire.Endpoints) ([]byte, refusal) {
	switch {
	case asked.Addresses == 0:
		address := s.o.Advertise
		if address == "" {
			address = c.Local()
		}
		return endpointsOf(address), refusal{}
	case asked.Scheme < wire.SchemeIPv4 || asked.Scheme > wire.SchemeDomain:
		return nil, refuse(rmqv2.Code_ILLEGAL_ACCESS_POINT, "the endpoints have no address scheme")
	case asked.Bad:
		return nil, refuse(rmqv2.Code_ILLEGAL_ACCESS_POINT, "the endpoints have an address without a host or with a port outside 1..65535")
	}
	return asked.Bytes(), refusal{}
}

// endpointsOf encodes a host:port.
func endpointsOf(address string) []byte {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	port, _ := strconv.ParseUint(portText, 10, 16) // 0 if there is none: the address was checked at the start
	scheme := int32(wire.SchemeDomain)
	if ip, err := netip.ParseAddr(host); err == nil {
		scheme = wire.SchemeIPv6
		if ip.Unmap().Is4() {
			scheme, host = wire.SchemeIPv4, ip.Unmap().String()
		}
	}
	return wire.AppendEndpoints(nil, scheme, host, int32(port))
}
