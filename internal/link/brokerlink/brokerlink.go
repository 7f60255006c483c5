// Package brokerlink carries brokerapi over a link: Client is a brokerapi.Broker whose calls travel,
// Server hands them to the broker of a Connector at the other end.
//
// Leases are not lost on the way while both ends live: messages of a pop whose caller has been told
// of a failure meanwhile, or whose answer cannot be sent, are given back at once, without counting an
// attempt.
package brokerlink

import (
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/link"
)

// giveBackTimeout bounds the attempt to give messages back; after that their leases run out.
const giveBackTimeout = 10 * time.Second

// popBytesMax bounds the reply to one pop, so that it fits a message of the link.
const popBytesMax = link.MessageMax / 2

// giveBack is the change that makes messages visible again as if they had not been handed out.
func giveBack(topic brokerapi.TopicID, group brokerapi.GroupID, who brokerapi.Principal, messages []brokerapi.Delivery) *brokerapi.ChangeRequest {
	handles := make([]brokerapi.Handle, len(messages))
	for i := range messages {
		m := &messages[i]
		handles[i] = brokerapi.Handle{Queue: m.Queue, Offset: m.Offset, Lease: m.Lease, Epoch: m.Epoch}
	}
	return &brokerapi.ChangeRequest{
		Head:  brokerapi.Head{Principal: who, Deadline: time.Now().Add(giveBackTimeout)},
		Topic: topic, Group: group, Handles: handles, Mode: brokerapi.ChangeKeep,
	}
}
