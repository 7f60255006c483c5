package blackbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/testbin"
)

// stoppable is a dev process on fixed ports that a test stops.
type stoppable struct {
	*process
	t               *testing.T
	dir, grpc, http string
}

// newStoppable starts a server. What runs of it at the end of the test must end well.
func newStoppable(t *testing.T, more ...string) *stoppable {
	t.Helper()
	s := &stoppable{t: t, dir: t.TempDir(), grpc: freeAddr(t), http: freeAddr(t)}
	s.start(more...)
	t.Cleanup(func() {
		select {
		case <-s.ended:
		default:
			ends(t, s.process)
		}
	})
	return s
}

func (s *stoppable) start(more ...string) {
	s.t.Helper()
	bin, err := testbin.Path()
	if err != nil {
		s.t.Fatal(err)
	}
	s.process, _, err = start(s.t.Name(), bin, append([]string{"dev", "--auto-create=false", "--data-dir", s.dir, "--grpc-addr", s.grpc, "--http-addr", s.http}, more...)...)
	if err != nil {
		s.t.Fatal(err)
	}
}

// terminate asks it to stop and does not wait.
func (s *stoppable) terminate() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
}

// unready waits until the HTTP port says that it is not ready.
func (s *stoppable) unready() {
	s.t.Helper()
	until(s.t, 20*time.Second, func(ctx context.Context) bool {
		return httpCode(ctx, "http://"+s.http+"/readyz") == http.StatusServiceUnavailable
	})
}

// telemetry opens a telemetry stream and returns once its settings are answered.
func telemetry(t *testing.T, c *client, p *place) rmqv2.MessagingService_TelemetryClient {
	t.Helper()
	stream, err := rmqv2.NewMessagingServiceClient(c.conn).Telemetry(metadata.NewOutgoingContext(t.Context(), c.meta))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(settingsCommand(consumerSettings(p.topic, p.group))); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// longReceive waits for a message for as long as the server lets it.
func longReceive(t *testing.T, p *place, c *client) <-chan answer {
	waiting := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		waiting <- p.receive(ctx, c, func(r *rmqv2.ReceiveMessageRequest) {
			r.LongPollingTimeout = durationpb.New(30 * time.Second)
			invisible(time.Minute)(r)
		})
	}()
	return waiting
}

func longPull(t *testing.T, p *place, c *client) <-chan answer {
	waiting := make(chan answer, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		waiting <- c.do(ctx, "PullMessage", &rmqv2.PullMessageRequest{
			Group: resource(p.group), MessageQueue: &rmqv2.MessageQueue{Topic: resource(p.topic)}, BatchSize: 8, LongPollingTimeout: durationpb.New(30 * time.Second),
		})
	}()
	return waiting
}

// waits tells whether a metric of waiting calls is n.
func waits(t *testing.T, addr string, n int) {
	t.Helper()
	until(t, 20*time.Second, func(context.Context) bool {
		return dev{http: addr}.metric(t, "perigee_proxy_receives_waiting") == float64(n)
	})
}

// TestStop: a stop in the middle of everything loses nothing that was answered and cuts no request in two.
//
//fault:kill a process is asked to stop under load => receives and pulls that wait are answered empty, telemetry streams get a reconnect command and end, every answered send is there after the next start, which reads no log
func TestStop(t *testing.T) {
	t.Parallel()
	server := newStoppable(t, "--drain-timeout", "1h", "--drain-delay", "500ms") // no call that goes on may need the timeout
	c := connect(t, server.grpc)
	p, idle := newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1), newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
	p.put(3)
	commands := telemetry(t, c, idle)
	receive, pull := longReceive(t, idle, c), longPull(t, idle, c)
	waits(t, server.http, 1)

	var senders sync.WaitGroup
	var sent, failed atomic.Int64
	for i := range 4 {
		own := connect(t, server.grpc)
		senders.Go(func() {
			for n := 0; ; n++ {
				a := p.send(t.Context(), own, p.message(fmt.Sprint("load ", i, n)))
				if a.name() != "OK" {
					failed.Add(1)
					a.is(t, "Unavailable|HA_NOT_AVAILABLE")
					return
				}
				sent.Add(1)
			}
		})
	}
	until(t, 20*time.Second, func(context.Context) bool { return sent.Load() > 100 })
	server.terminate()
	server.unready()
	a := <-receive
	a.is(t, "MESSAGE_NOT_FOUND")
	a = <-pull
	a.is(t, "OK")
	cmd, err := commands.Recv()
	if err != nil || cmd.GetReconnectEndpointsCommand() == nil {
		t.Errorf("the telemetry stream says %v, %v: wanted a reconnect command", cmd, err)
	}
	if _, err := commands.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the telemetry stream ends with %v", err)
	}
	senders.Wait()
	if code, err := server.over(30 * time.Second); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, server.log())
	}
	if _, err := os.Stat(filepath.Join(server.dir, "broker", "clean.json")); err != nil {
		t.Error(err)
	}
	t.Logf("%d sends were answered, %d were refused", sent.Load(), failed.Load())

	server.start() // the places are settled against it
	until(t, 20*time.Second, func(ctx context.Context) bool {
		return c.do(ctx, "QueryRoute", request("QueryRoute", p.topic, "")).name() == "OK"
	})
}

func httpCode(ctx context.Context, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

// TestStopWithStuckClients: neither who says nothing nor who reads nothing holds a stop longer than its
// timeout, and who is well is served in between.
//
//fault:client clients that say nothing, read nothing or stop within a handshake => a stop ends after its timeout, with exit code 0
func TestStopWithStuckClients(t *testing.T) {
	t.Parallel()
	server := newStoppable(t, "--drain-timeout", "2s")
	var dialer net.Dialer
	for _, says := range []string{"", "PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01"} {
		conn, err := dialer.DialContext(t.Context(), "tcp", server.grpc)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(says)); err != nil {
			t.Fatal(err)
		}
	}
	secure, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", server.grpc) //nolint:gosec // a test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer secure.Close()
	server.terminate()
	// Well under the ten seconds that a handshake may take.
	if code, err := server.over(20 * time.Second); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v\n%s", code, err, server.log())
	}
}

// TestSecondSignal: a process that waits for something at its end is ended by a second signal. Until then it
// serves, and says that it is not ready.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	server := newStoppable(t, "--drain-delay", "1h")
	c := connect(t, server.grpc)
	server.terminate()
	server.unready()
	makeTopic(t, c, "late", controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
	c.do(t.Context(), "SendMessage", request("SendMessage", "late", "")).is(t, "OK")
	server.terminate()
	if _, err := server.over(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	if status, ok := server.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", server.cmd.ProcessState)
	}
}

// TestBrokerStop: a broker that is asked to stop answers what waits in it, and nobody hears of anything but
// that it is away.
func TestBrokerStop(t *testing.T) {
	t.Parallel()
	k := newCluster(t)
	c := k.client(0)
	p := newTyped(t, c, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
	home := brokersOf(t, c, p.topic)[0][:1]
	pull := longPull(t, p, c)
	receive := longReceive(t, p, k.client(1))
	waits(t, k.proxies[1].http, 1)
	if err := k.brokers[home].stop(); err != nil { // exit code 0
		t.Fatal(err)
	}
	a := <-pull
	a.is(t, "OK|MESSAGE_NOT_FOUND")
	k.startBroker(home)
	until(t, 20*time.Second, func(ctx context.Context) bool { return p.send(ctx, c, p.message("back")).name() == "OK" })
	a = <-receive
	if a.is(t, "OK|"+away); len(a.messages) > 0 {
		p.ack(t.Context(), c, a.messages).is(t, "OK")
	}
}
