package engine

import (
	"slices"

	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// leftOutOp settles the messages that a receive has leased and has left out of its answer: nobody was told of
// them, so their leases may end early.
//
// But the same receive may have come again meanwhile, as when a client did not wait for a slow disk, and may have been
// answered with them under the same lease. Then that lease is the client's and stays as it is; and what a
// repeated receive leaves out, an answer before it may have told.
type leftOutOp struct {
	waiter
	of     *popOp
	over   []brokerapi.Handle // done for the group
	unread []brokerapi.Handle // to be left alone for a while
}

func (o *leftOutOp) bytes() int { return 1 }

func (o *leftOutOp) finish(*writer, error) {}

func (o *leftOutOp) run(w *writer) {
	req := o.of.req
	told := func(h brokerapi.Handle) bool {
		k := pop.Key{Group: record.GroupID(req.Group), Topic: record.TopicID(req.Topic), Queue: record.QueueID(h.Queue)}
		return w.views.pop.Told(k, record.QueueOffset(h.Offset), record.Pos(h.Lease))
	}
	if over := slices.DeleteFunc(o.over, told); len(over) > 0 {
		o.of.ackOf(over).run(w)
	}
	if unread := slices.DeleteFunc(o.unread, told); len(unread) > 0 {
		c := changeOp{req: &brokerapi.ChangeRequest{Topic: req.Topic, Group: req.Group, Handles: unread, Invisible: o.of.wait, Mode: brokerapi.ChangeKeep}}
		c.run(w)
	}
}

// ackOf ends messages of a receive for its group, on the engine's own account.
func (o *popOp) ackOf(hs []brokerapi.Handle) *ackOp {
	return &ackOp{req: &brokerapi.AckRequest{Topic: o.req.Topic, Group: o.req.Group, Handles: hs}, done: func(*brokerapi.AckReply, error) {}}
}
