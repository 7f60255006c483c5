package edge

import (
	"sync"
	"testing"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
)

// ended counts the calls that were measured.
type ended struct{ sync.WaitGroup }

func (*ended) Begin()     {}
func (e *ended) End(Call) { e.Done() }

// TestMeterOfACallThatIsCutOff: somebody still sends when it ends. The race detector judges.
func TestMeterOfACallThatIsCutOff(t *testing.T) {
	const calls = 200
	var measured ended
	var senders sync.WaitGroup
	status := statusBytes(t)
	_, addr := start(t, Options{
		Meter: func(string) Meter { return &measured },
		Service: Service{ReceiveMessage: func(c call.Stream) {
			senders.Go(func() { _ = c.Send(status) })
			c.Fail(call.Cancelled, "cut off")
		}},
	})
	c := client(t, addr)
	measured.Add(calls)
	for range calls {
		stream, err := c.ReceiveMessage(short(t), &rmqv2.ReceiveMessageRequest{})
		for err == nil {
			_, err = stream.Recv()
		}
	}
	measured.Wait()
	senders.Wait()
}
