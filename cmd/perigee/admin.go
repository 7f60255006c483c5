package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
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

// explain turns a gRPC error into one with an exit code and something to do.
func (s clientSettings) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, coded := errors.AsType[exitError](err); coded {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	said := len(st.Details()) > 0 // by a handler of ours, so the service itself is there
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		if said {
			return exitError{code: exitUnreachable, err: errors.New(st.Message())}
		}
		return exitError{code: exitUnreachable, err: fmt.Errorf("%s does not answer (%s): is it running, and is --server its gRPC address?", s.Server, st.Message())}
	case codes.Unimplemented:
		if said {
			break
		}
		return exitError{code: exitUnreachable, err: fmt.Errorf("%s is no Perigee proxy: it does not know the administrative service", s.Server)}
	case codes.Canceled:
		return exitError{code: exitFailed, err: errors.New("interrupted")}
	}
	return exitError{code: exitRefused, err: errors.New(st.Message())}
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
