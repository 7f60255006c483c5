package brokerapitest

import (
	"testing"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/brokerapitest/membroker"
)

// Memory is a harness around a broker in memory. At the end of the test every reply must have been
// released and every session closed.
func Memory(t *testing.T) (Harness, *membroker.Broker) {
	o := membroker.Options{
		Topics: map[brokerapi.TopicID]int{1: 4, 2: 4}, Groups: []brokerapi.GroupID{7, 8}, Epoch: 3,
		SessionTimeout: time.Second, GoodbyeDelay: 200 * time.Millisecond,
	}
	b := membroker.New(o)
	t.Cleanup(func() {
		if n := b.Held(); n != 0 {
			t.Errorf("%d replies were not released", n)
		}
		if n := b.Sessions(); n != 0 {
			t.Errorf("%d sessions were not closed", n)
		}
		b.Stop()
	})
	return Harness{
		Connector: b, Topic: 1, OtherTopic: 2, Queues: 4, Group: 7, OtherGroup: 8, Epoch: o.Epoch,
		SessionTimeout: o.SessionTimeout, GoodbyeDelay: o.GoodbyeDelay,
	}, b
}
