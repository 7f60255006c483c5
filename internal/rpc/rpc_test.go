package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Every kind has a code, and comes back as itself with its text.
func TestKindsSurviveTheWire(t *testing.T) {
	for _, k := range mqerr.Kinds() {
		c, ok := kindCodes[k]
		if !ok {
			t.Errorf("kind %v has no gRPC code", k)
			continue
		}
		if c == codes.OK || c == codes.Unknown {
			t.Errorf("kind %v has the code %v, which says nothing", k, c)
		}
		st := ToStatus(fmt.Errorf("outer: %w", mqerr.New(k, "why %v", k)))
		if status.Code(st) != c {
			t.Errorf("kind %v: code %v, want %v", k, status.Code(st), c)
		}
		back := FromStatus(st)
		if mqerr.KindOf(back) != k {
			t.Errorf("kind %v came back as %v", k, mqerr.KindOf(back))
		}
		hidden := k == mqerr.Internal
		if got := strings.Contains(back.Error(), "why"); got == hidden {
			t.Errorf("kind %v: text %q, hidden should be %v", k, back, hidden)
		}
	}
	if len(kindCodes) != len(mqerr.Kinds()) {
		t.Errorf("%d codes for %d kinds", len(kindCodes), len(mqerr.Kinds()))
	}
}

func TestStatusesOfGRPCItself(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want, ok := bareKinds[code]
		if !ok && code != codes.Unknown && code != codes.Internal {
			t.Errorf("code %v has no kind", code)
		}
		if got := mqerr.KindOf(FromStatus(status.Error(code, "x"))); got != want {
			t.Errorf("code %v is kind %v, want %v", code, got, want)
		}
	}
	if k := mqerr.KindOf(FromStatus(ToStatus(context.DeadlineExceeded))); k != mqerr.UnknownOutcome {
		t.Errorf("a deadline is %v", k)
	}
	if k := mqerr.KindOf(FromStatus(ToStatus(context.Canceled))); k != mqerr.Cancelled {
		t.Errorf("a cancelled call is %v", k)
	}
	if ToStatus(nil) != nil || FromStatus(nil) != nil {
		t.Error("nil is not nil")
	}
	newer, _ := status.New(codes.Aborted, "x").WithDetails(&controllerv1.ErrorDetail{Kind: 200})
	if k := mqerr.KindOf(FromStatus(newer.Err())); k != mqerr.Internal {
		t.Errorf("an unknown kind is %v", k)
	}
	plain := errors.New("plain")
	if FromStatus(plain) != plain { //nolint:errorlint // the very same value
		t.Error("a plain error was changed")
	}
}

type fake struct {
	controllerv1.UnimplementedControllerServiceServer
}

func (fake) Status(context.Context, *controllerv1.StatusRequest) (*controllerv1.StatusResponse, error) {
	panic("boom")
}

func (fake) PutTopic(_ context.Context, r *controllerv1.PutTopicRequest) (*controllerv1.PutTopicResponse, error) {
	return nil, mqerr.New(mqerr.DiskFull, "no room for %s", r.GetName())
}

func (fake) Watch(_ *controllerv1.WatchRequest, s grpc.ServerStreamingServer[controllerv1.WatchUpdate]) error {
	if err := s.Send(&controllerv1.WatchUpdate{}); err != nil {
		return err
	}
	return mqerr.New(mqerr.Draining, "going away")
}

func TestInterceptors(t *testing.T) {
	ln := bufconn.Listen(1 << 16)
	var logged strings.Builder
	srv := grpc.NewServer(ServerOptions(slog.New(slog.NewTextHandler(&logged, nil)))...)
	controllerv1.RegisterControllerServiceServer(srv, fake{})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	cc, err := grpc.NewClient("passthrough:///x", append(DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	cl := controllerv1.NewControllerServiceClient(cc)

	_, err = cl.PutTopic(t.Context(), &controllerv1.PutTopicRequest{Name: "orders"})
	if !mqerr.Is(err, mqerr.DiskFull) || err.Error() != "no room for orders" {
		t.Errorf("PutTopic: %v", err)
	}
	if _, err = cl.Status(t.Context(), &controllerv1.StatusRequest{}); !mqerr.Is(err, mqerr.Internal) || strings.Contains(err.Error(), "boom") {
		t.Errorf("Status: %v", err)
	}
	w, err := cl.Watch(t.Context(), &controllerv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Recv(); err != nil {
		t.Errorf("first update: %v", err)
	}
	if _, err = w.Recv(); !mqerr.Is(err, mqerr.Draining) || errors.Is(err, io.EOF) {
		t.Errorf("end of watch: %v", err)
	}
	_ = cc.Close()
	srv.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := logged.String(); !strings.Contains(s, "boom") || strings.Contains(s, "no room") {
		t.Errorf("log: %s", s)
	}
}
