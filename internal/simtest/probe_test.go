package simtest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// probe sends again and again, so that it is known for how long nobody could (A11).
type probe struct {
	mu    sync.Mutex
	last  time.Time     // when a send began that has succeeded
	moved chan struct{} // closed and replaced with each success
	worst time.Duration // the longest time between two
	n     int
}

func newProbe() *probe { return &probe{last: time.Now(), moved: make(chan struct{})} }

const probeTopic = "probe"

// run sends through one proxy after the other until ctx ends.
func (p *probe) run(ctx context.Context, s *sim, dial func(context.Context, string) (net.Conn, error)) {
	var conns []*grpc.ClientConn
	for _, x := range s.proxies {
		c, err := grpc.NewClient("passthrough:///"+x.ip+proxyPort, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond}, MinConnectTimeout: time.Second}))
		if err != nil {
			s.fail("%v", err)
			return
		}
		defer c.Close()
		conns = append(conns, c)
	}
	var wg sync.WaitGroup
	for k, c := range conns {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began := time.Now()
				if p.send(ctx, c, fmt.Sprintf("01%02X%030X", k+16, i)) {
					p.succeeded(began)
				}
				pause(ctx, 100*time.Millisecond)
			}
		})
	}
	wg.Wait()
}

func (p *probe) send(ctx context.Context, c *grpc.ClientConn, id string) bool {
	ctx = metadata.AppendToOutgoingContext(ctx, "x-mq-client-id", "probe", "x-mq-language", "GO", "x-mq-client-version", "5.1.3")
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	resp, err := rmqv2.NewMessagingServiceClient(c).SendMessage(ctx, &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{{
		Topic: &rmqv2.Resource{Name: probeTopic}, Body: []byte(id), SystemProperties: &rmqv2.SystemProperties{MessageId: id, MessageType: rmqv2.MessageType_NORMAL},
	}}})
	return err == nil && resp.GetStatus().GetCode() == rmqv2.Code_OK
}

func (p *probe) succeeded(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if began.After(p.last) {
		p.worst = max(p.worst, began.Sub(p.last))
		p.last = began
	}
	p.n++
	close(p.moved)
	p.moved = make(chan struct{})
}

// since waits until a send has succeeded that began after a time, and returns how long that took: more than most if it
// did not happen.
func (p *probe) since(at time.Time, most time.Duration) time.Duration {
	t := time.NewTimer(most)
	defer t.Stop()
	for {
		p.mu.Lock()
		last, moved := p.last, p.moved
		p.mu.Unlock()
		if last.After(at) {
			return time.Since(at)
		}
		select {
		case <-moved:
		case <-t.C:
			return most + 1
		}
	}
}
