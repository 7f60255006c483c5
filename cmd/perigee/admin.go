package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/perigee-mq/perigee/api/perigee/admin/v1"
)

// clientSettings are the settings of commands that talk to a running service.
type clientSettings struct {
	Server  string        `koanf:"server" help:"gRPC address of a proxy, host:port"`
	Timeout time.Duration `koanf:"timeout" help:"how long to wait for an answer"`
}

func defaultClient() clientSettings {
	return clientSettings{Server: "127.0.0.1:8081", Timeout: 15 * time.Second}
}

// outputSettings choose how a command prints.
type outputSettings struct {
	Output string `koanf:"output" short:"o" help:"how to print: table or json"`
}

func (o outputSettings) check() error {
	if o.Output != "table" && o.Output != "json" {
		return usageError("--output %q: use table or json", o.Output)
	}
	return nil
}

// maxReply is the largest answer that the command line takes, in bytes.
const maxReply = 64 << 20

func (s clientSettings) dial() (*grpc.ClientConn, error) {
	if _, _, err := net.SplitHostPort(s.Server); err != nil {
		return nil, usageError("--server %q: write host:port", s.Server)
	}
	if s.Timeout <= 0 {
		return nil, usageError("--timeout %s: use more than 0", s.Timeout)
	}
	conn, err := grpc.NewClient("passthrough:///"+s.Server, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply), grpc.MaxCallSendMsgSize(maxReply)))
	if err != nil {
		return nil, usageError("--server %q: %w", s.Server, err)
	}
	return conn, nil
}

// admin calls f with a client of the administrative service.
func (s clientSettings) admin(ctx context.Context, f func(context.Context, adminv1.AdminServiceClient) error) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return s.explain(f(ctx, adminv1.NewAdminServiceClient(conn)))
}

// printJSON prints a message as indented JSON.
func printJSON(w io.Writer, m proto.Message) error {
	b, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil { // protojson's spacing varies on purpose
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// newTable returns a plain table.
func newTable(w io.Writer, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = 0
	t.SetStyle(style)
	t.AppendHeader(header)
	return t
}

// moment prints a time in ms since 1970, "-" where there is none.
func moment(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return time.UnixMilli(*ms).UTC().Format(time.RFC3339)
}
