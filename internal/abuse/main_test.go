package abuse

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/testbin"
)

// full says that the tests have their full size.
var full = os.Getenv("TEST_ABUSE_FULL") != ""

// size is the short or the full size of something.
func size(short, all int) int {
	if full {
		return all
	}
	return short
}

func TestMain(m *testing.M) {
	code := m.Run()
	testbin.Remove()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println("FAIL:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// log keeps what a process logs.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// server is a process under a limit.
type server struct {
	*process
	t     *testing.T
	limit int64
}

// serve starts a process with a memory limit in MiB. It must end well, and its log must not speak of a bug.
func serve(t *testing.T, mib int, args ...string) *server {
	t.Helper()
	bin, err := testbin.Path()
	require.NoError(t, err)
	l := &log{}
	p, err := launch(bin, t.TempDir(), l, append([]string{"--memory-limit", fmt.Sprintf("%dMiB", mib)}, args...)...)
	require.NoError(t, err, "%s", l)
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("%v\n%s", err, l)
		}
		for _, word := range []string{"panic", "fatal error", "level=ERROR"} {
			if strings.Contains(l.String(), word) {
				t.Errorf("the log speaks of %q:\n%s", word, l)
			}
		}
	})
	return &server{process: p, t: t, limit: int64(mib) << 20}
}

// below checks the memory of the process and returns it.
func (s *server) below(what string) int64 {
	s.t.Helper()
	n, err := s.anonymous()
	require.NoError(s.t, err)
	require.Less(s.t, n, s.limit, "%s: anonymous memory", what)
	goroutines, err := s.metric("go_goroutines")
	require.NoError(s.t, err)
	s.t.Logf("%s: %d MiB anonymous memory, %.0f goroutines", what, n>>20, goroutines)
	return n
}

// peaks is the most that was seen of a process while something went on.
type peaks struct{ anonymous, live, goroutines float64 }

// watch looks at the process until the returned function is called, which tells the peaks. What is in use for good is
// known as of the last collection; the rest of the memory is garbage that a collection would free.
func (s *server) watch() func() peaks {
	var p peaks
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			if n, err := s.anonymous(); err == nil {
				p.anonymous = max(p.anonymous, float64(n))
			}
			if n, err := s.metric("perigee_memory_bytes", `kind="live"`); err == nil {
				p.live = max(p.live, n)
			}
			if n, err := s.metric("go_goroutines"); err == nil {
				p.goroutines = max(p.goroutines, n)
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() peaks {
		close(stop)
		<-done
		s.t.Logf("at most: %.0f MiB anonymous memory, %.0f MiB in use for good, %.0f goroutines", p.anonymous/(1<<20), p.live/(1<<20), p.goroutines)
		return p
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func (s *server) gauge(name string, labels ...string) float64 {
	s.t.Helper()
	v, err := s.metric(name, labels...)
	require.NoError(s.t, err)
	return v
}

// client is a well-behaved client.
type client struct {
	rmqv2.MessagingServiceClient
	ctx context.Context
}

func (s *server) client(id string, o ...grpc.DialOption) client {
	s.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.grpc, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Minute)
	s.t.Cleanup(cancel)
	return client{rmqv2.NewMessagingServiceClient(conn), metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", id)}
}

var ids sync.Map

// send stores one message.
func (c client) send(topic string, body []byte) (*rmqv2.Status, error) {
	n, _ := ids.LoadOrStore(topic, new(counter))
	r, err := c.SendMessage(c.ctx, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{{
		Topic:            &rmqv2.Resource{Name: topic},
		SystemProperties: &rmqv2.SystemProperties{MessageId: fmt.Sprintf("%s-%d", topic, n.(*counter).next()), MessageType: rmqv2.MessageType_NORMAL},
		Body:             body,
	}}})
	return r.GetStatus(), err
}

type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// served makes sure that a well-behaved client still gets what it wants.
func (s *server) served(c client) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	st, err := client{c.MessagingServiceClient, ctx}.send("others", []byte("x"))
	require.NoError(s.t, err)
	require.Equal(s.t, rmqv2.Code_OK, st.GetCode(), "%s", st.GetMessage())
}
