package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// client speaks the public protocol for the commands that send and receive.
type client struct {
	conn *grpc.ClientConn
	rpc  rmqv2.MessagingServiceClient
	id   string
	at   *rmqv2.Endpoints
	ids  idMaker
}

func (s clientSettings) client() (*client, error) {
	host, port, err := net.SplitHostPort(s.Server)
	if err != nil {
		return nil, usageError("--server %q: write host:port", s.Server)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, usageError("--server %q: the port is no number", s.Server)
	}
	conn, err := s.dial()
	if err != nil {
		return nil, err
	}
	scheme := rmqv2.AddressScheme_DOMAIN_NAME
	if ip := net.ParseIP(host); ip != nil {
		scheme = rmqv2.AddressScheme_IPv6
		if ip.To4() != nil {
			scheme = rmqv2.AddressScheme_IPv4
		}
	}
	c := &client{conn: conn, rpc: rmqv2.NewMessagingServiceClient(conn)}
	c.at = &rmqv2.Endpoints{Scheme: scheme, Addresses: []*rmqv2.Address{{Host: host, Port: int32(n)}}}
	c.ids.init()
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	c.id = fmt.Sprintf("%s@%d@perigee@%x", name, os.Getpid(), c.ids.unique)
	return c, nil
}

// header adds the client's metadata to a context.
func (c *client) header(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx,
		"x-mq-client-id", c.id, "x-mq-language", "GO", "x-mq-protocol", "v2", "x-mq-client-version", version,
		"x-mq-date-time", time.Now().UTC().Format("20060102T150405Z"))
}

// good tells whether a status is a success, as an error with an exit code.
func good(st *rmqv2.Status) error {
	if st.GetCode() == rmqv2.Code_OK {
		return nil
	}
	code := exitRefused
	if st.GetCode() == rmqv2.Code_HA_NOT_AVAILABLE {
		code = exitUnreachable // the broker, as the text says
	}
	return exitError{code: code, err: fmt.Errorf("%s: %s", st.GetCode(), st.GetMessage())}
}

// idMaker makes message ids in the layout of the official clients: version 1, six bytes that differ
// between machines, two between processes, seconds since 2021, a sequence.
type idMaker struct {
	unique [8]byte
	next   atomic.Uint32
}

func (m *idMaker) init() {
	rand.Read(m.unique[:])
	binary.BigEndian.PutUint16(m.unique[6:], uint16(os.Getpid()))
}

// idEpoch is the start of the seconds in a message id.
var idEpoch = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)

func (m *idMaker) id() string {
	return fmt.Sprintf("01%X%08X%08X", m.unique, uint32(time.Since(idEpoch)/time.Second), m.next.Add(1)-1)
}
