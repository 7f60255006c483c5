package blackbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/testseed"
)

// garbage returns bytes that are no request of a method, or hardly one: cut, with flipped bits, random.
func garbage(good []byte, rng *rand.Rand) [][]byte {
	var list [][]byte
	for n := range good {
		list = append(list, good[:n])
	}
	for range 150 {
		b := append([]byte(nil), good...)
		for range 1 + rng.IntN(3) {
			if len(b) > 0 {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
		}
		list = append(list, b)
	}
	for range 50 {
		b := make([]byte, rng.IntN(200))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		list = append(list, b)
	}
	return append(list, []byte{0xff}, []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}, []byte("\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"),
		[]byte{0x0b}, []byte{0x0c}, []byte{0x0e}, []byte{0x00}, []byte(strings.Repeat("\x0a", 100)), []byte(strings.Repeat("\x0b", 10000)), nested(200),
		[]byte(strings.Repeat("\xff", 1<<20)))
}

// nested is a message in a message, so many times.
func nested(depth int) []byte {
	var b []byte
	for range depth {
		b = append([]byte{0x0a, byte(len(b)&0x7f | 0x80), byte(len(b) >> 7)}, b...)
	}
	return b
}

// TestGarbage sends bytes that are no request to every method. What was stored of them is what was
// answered OK, and nothing of it is an internal error.
//
//fault:client bytes that are no request, to every method => refused; what was stored of them is what was answered OK; no internal error
func TestGarbage(t *testing.T) {
	t.Parallel()
	seed := testseed.First(t)
	eachMethod(func(method string) {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			c := connect(t, sharedDev(t).grpc)
			// Names of other tests are more than some bits away.
			name := fmt.Sprintf("garbage-%x", sha256.Sum256([]byte(method)))[:60]
			makeTopic(t, c, name, controllerv1.TopicType_TOPIC_TYPE_NORMAL, 1)
			makeGroup(t, c, name)
			good, err := proto.Marshal(request(method, name, name))
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			offsets := map[int64]bool{} // of what was answered OK; a duplicate has that of the first
			var wg sync.WaitGroup
			slots := make(chan bool, 16)
			for _, b := range garbage(good, rand.New(rand.NewPCG(seed, uint64(len(method))))) {
				slots <- true
				wg.Go(func() {
					defer func() { <-slots }()
					a := hurried(t.Context(), c, method, b)
					switch a.name() {
					case "Internal", "Unavailable", "DeadlineExceeded", "INTERNAL_SERVER_ERROR", "PROXY_TIMEOUT":
						t.Errorf("%.200x is answered %s: %s%s", b, a.name(), a.text, a.status.GetMessage())
					}
					if method == "SendMessage" {
						for i, e := range a.entries {
							if e.GetCode() == rmqv2.Code_OK {
								mu.Lock()
								offsets[a.offsets[i]] = true
								mu.Unlock()
							}
						}
					}
				})
			}
			wg.Wait()
			p := &place{t: t, c: c, topic: name, group: name}
			stored := int64(len(offsets))
			if n := p.length(t.Context()); n != stored {
				t.Errorf("%d messages are stored, %d were answered OK", n, stored)
			}
			got := int64(0)
			for got < stored {
				a := c.do(t.Context(), "ReceiveMessage", receiveRequest(name, name))
				if a.is(t, "OK"); len(a.messages) == 0 {
					break
				}
				got += int64(len(a.messages))
				c.do(t.Context(), "AckMessage", ackRequest(name, name, a.messages...)).is(t, "OK")
			}
			if n := p.open(t.Context()); n != 0 || got != stored {
				t.Errorf("%d of %d messages came, %d are open", got, stored, n)
			}
		})
	})
}

// hurried makes a call and gives it up after a while: one that is good after all may wait long for
// messages.
func hurried(ctx context.Context, c *client, method string, b []byte) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if method == "ReceiveMessage" || method == "PullMessage" {
		defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
	}
	return c.raw(ctx, method, b)
}
