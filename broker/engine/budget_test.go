package engine

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// TestLogBytes holds the budget of design §8: log bytes for each byte received (body and properties),
// stored and consumed once, 1 KiB bodies, 32 a receive and an ack.
func TestLogBytes(t *testing.T) {
	const count, batch, budget = 3200, 32, 1.15
	for _, kind := range []struct {
		name string
		typ  brokerapi.MessageType
	}{
		{"normal", brokerapi.Normal}, {"delayed", brokerapi.Delay}, {"transactional", brokerapi.Transaction}, {"ordered", brokerapi.FIFO},
	} {
		t.Run(kind.name, func(t *testing.T) {
			b := newBench(t, Options{})
			b.mustOpen()
			require.NoError(t, b.engine.Define(t.Context(), &Definitions{
				Topics: []topic.Definition{{ID: 1, Name: "t", Type: topic.Type(kind.typ), Queues: 4, Version: 1}},
				Groups: []group.Definition{{ID: 1, Name: "g", MaxAttempts: 17, Ordered: kind.typ == brokerapi.FIFO, Version: 2}},
				Full:   true, Version: 2,
			}))
			before := must(b.engine.Views(t.Context())).Written
			received := 0
			for i := range count {
				m := message("")
				m.Type, m.ID = kind.typ, fmt.Appendf(nil, "01A2B3C4D5E6F7%020X", i)
				m.Body = bytes.Repeat([]byte{byte(i)}, 1024)
				m.User = bytes.Repeat([]byte{'u'}, 64)
				m.Sys = bytes.Repeat([]byte{0x7a, 2, 'u', 'u'}, 16)
				switch kind.typ {
				case brokerapi.Delay:
					m.DeliverAt = b.clock.Wall() + 5000
				case brokerapi.FIFO:
					m.GroupHash = uint64(i/batch + 1)
					m.Queue = brokerapi.QueueID(m.GroupHash % 4)
				}
				received += len(m.Body) + len(m.User) + len(m.Sys)
				_, err := wait(t, func(done func(*brokerapi.SendReply, error)) {
					b.proxy.Send(&brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{m}}, done)
				})
				require.NoError(t, err)
				if kind.typ == brokerapi.Transaction {
					_, err := wait(t, func(done func(*brokerapi.EndTxnReply, error)) {
						b.proxy.EndTxn(&brokerapi.EndTxnRequest{Topic: 1, ID: m.ID, Commit: true, Source: brokerapi.TxnByClient}, done)
					})
					require.NoError(t, err)
				}
			}
			b.clock.advance(6 * time.Second)
			for left := count; left > 0; {
				require.NoError(t, b.engine.call(context.Background(), func(*writer) {}))
				ms, _, err := b.pop(brokerapi.PopRequest{Topic: 1, Group: 1, Max: batch})
				require.NoError(t, err)
				for _, e := range b.ack(1, 1, ms...) {
					require.NoError(t, e)
				}
				left -= len(ms)
			}
			written := must(b.engine.Views(t.Context())).Written - before
			ratio := float64(written) / float64(received)
			t.Logf("%s: %d bytes of log for %d bytes received: %.4f", kind.name, written, received, ratio)
			require.LessOrEqual(t, ratio, budget)
		})
	}
}
