// Command bare is the yardstick of `make bench`: a grpc-go server with default options and standard
// protobuf that decodes a SendMessage request and encodes an answer of the same size as Perigee's,
// and does nothing else. Its CPU per call is G. Its code is frozen: a change makes old figures
// worthless.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

type server struct {
	rmqv2.UnimplementedMessagingServiceServer
}

// SendMessage answers like a broker that stored the messages.
func (server) SendMessage(_ context.Context, req *rmqv2.SendMessageRequest) (*rmqv2.SendMessageResponse, error) {
	ok := &rmqv2.Status{Code: rmqv2.Code_OK, Message: "OK"}
	resp := &rmqv2.SendMessageResponse{Status: ok}
	for i, m := range req.GetMessages() {
		id := m.GetSystemProperties().GetMessageId()
		resp.Entries = append(resp.Entries, &rmqv2.SendResultEntry{Status: ok, MessageId: id, TransactionId: id, Offset: int64(i)})
	}
	return resp, nil
}

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	ln, err := net.Listen("tcp", *addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
	s := grpc.NewServer()
	rmqv2.RegisterMessagingServiceServer(s, server{})
	fmt.Println("ready", ln.Addr())
	if err := s.Serve(ln); err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
}
