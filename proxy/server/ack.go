package server

import (
	"sync/atomic"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/failover"
	"github.com/perigee-mq/perigee/proxy/receipt"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// ack is one AckMessage call.
type ack struct {
	s       *Server
	call    call.Unary
	req     wire.AckMessageRequest
	errs    []error // one for each entry; each shard writes its own
	shards  []ackShard
	pending atomic.Int32 // shards that have not answered
}

// ackShard is the entries of one shard.
type ackShard struct {
	id  brokerapi.ShardID
	out brokerapi.AckRequest
	try failover.Try
	at  []int // index of the entry of each handle
}

// AckMessage ends messages for a group. Every entry has its own result, in the order of the request.
func (s *Server) AckMessage(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	a := &ack{s: s, call: c}
	if err := a.req.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	if no = a.check(); no.given() {
		reject(c, no)
		return
	}
	a.start()
}

func (a *ack) check() refusal {
	if no := checkTopic(a.req.Topic.Name); no.given() {
		return no
	}
	if no := checkGroup(a.req.Group.Name); no.given() {
		return no
	}
	if len(a.req.Entries) == 0 {
		return refuse(rmqv2.Code_BAD_REQUEST, "no message to acknowledge")
	}
	return refusal{}
}

// start hands the entries to their shards.
func (a *ack) start() {
	routes := a.s.o.Routes.Load()
	topic, group := routes.Topic(a.req.Topic.Name), routes.Group(a.req.Group.Name)
	a.errs = make([]error, len(a.req.Entries))
	for i := range a.req.Entries {
		h, err := handleOf(routes, a.req.Entries[i].Handle, topic, group)
		if err == nil {
			err = checkLiteHandle(&h, a.req.Entries[i].LiteTopic)
		}
		if err != nil {
			a.errs[i] = err
			continue
		}
		sh := a.shard(h.Shard)
		sh.at = append(sh.at, i)
		sh.out.Handles = append(sh.out.Handles, h.Handle)
	}
	if len(a.shards) == 0 {
		a.finish()
		return
	}
	a.pending.Store(int32(len(a.shards)))
	deadline := a.s.deadline(a.call)
	for i := range a.shards {
		sh := &a.shards[i]
		sh.out.Topic, sh.out.Group, sh.out.Deadline = topic.ID, group.ID, deadline
		a.ask(sh)
	}
}

// ask hands its entries to a shard.
func (a *ack) ask(sh *ackShard) {
	home, err := a.s.shard(sh.id)
	if err != nil {
		a.answered(sh, nil, err)
		return
	}
	sh.out.Epoch = home.epoch
	home.broker.Ack(&sh.out, func(reply *brokerapi.AckReply, err error) { a.answered(sh, reply, err) })
}

// shard returns the part of a shard, of which there are few.
func (a *ack) shard(id brokerapi.ShardID) *ackShard {
	for i := range a.shards {
		if a.shards[i].id == id {
			return &a.shards[i]
		}
	}
	a.shards = append(a.shards, ackShard{id: id})
	return &a.shards[len(a.shards)-1]
}

// answered takes the answer of one shard, or asks its next master: an ack that is repeated changes nothing. The last one
// completes the call.
func (a *ack) answered(sh *ackShard, reply *brokerapi.AckReply, err error) {
	if err != nil {
		c := failover.Call{Shard: sh.id, Deadline: sh.out.Deadline, Repeat: true}
		if a.s.o.Masters.Again(c, &sh.try, err, func(late error) {
			if late != nil {
				a.settle(sh, nil, late)
				return
			}
			a.ask(sh)
		}) {
			return
		}
		err = sh.try.Result(err)
	}
	a.settle(sh, reply, err)
}

func (a *ack) settle(sh *ackShard, reply *brokerapi.AckReply, err error) {
	if err == nil && len(reply.Errors) != len(sh.at) {
		err = mqerr.New(mqerr.Internal, "broker answered %d results for %d handles", len(reply.Errors), len(sh.at))
	}
	for i, at := range sh.at {
		if err != nil {
			a.errs[at] = err
		} else {
			a.errs[at] = reply.Errors[i]
		}
	}
	if a.pending.Add(-1) == 0 {
		a.finish()
	}
}

// finish replies with a result for each entry, the handle as it was sent. The status of the whole is
// that of its entries, since some clients look at nothing else.
func (a *ack) finish() {
	results := make([]refusal, len(a.errs))
	top, room := refusal{}, 0
	for i, err := range a.errs {
		results[i] = refuse(rmqv2.Code_OK, okText)
		if err != nil {
			results[i] = a.s.outcome(RPCAckMessage, err)
			results[i].hint(a.call)
		}
		switch {
		case i == 0:
			top = results[0]
		case top.code != results[i].code:
			top = refuse(rmqv2.Code_MULTIPLE_RESULTS, "the messages had different results")
		}
		room += 24 + len(a.req.Entries[i].MessageID) + len(a.req.Entries[i].Handle) + len(results[i].text)
	}
	dst := appendRefusal(make([]byte, 0, 32+len(top.text)+room), top)
	for i := range results {
		e := &a.req.Entries[i]
		dst = wire.AppendAckEntry(dst, e.MessageID, e.Handle, int32(results[i].code), results[i].text)
	}
	a.call.Reply(dst)
}

// keyRing is the keys of receipt handles of one routing table.
type keyRing struct{ *route.Snapshot }

// HandleKey returns a key by its id.
func (k keyRing) HandleKey(id receipt.KeyID) (receipt.Key, bool) {
	for _, key := range k.HandleKeys() {
		if receipt.KeyID(key.ID) == id {
			return receipt.NewKey(key.Key), true
		}
	}
	return receipt.Key{}, false
}

var errForeign = mqerr.New(mqerr.HandleInvalid, "the receipt handle is of another topic or group")

// handleOf reads a receipt handle, which must be of the topic and group that the call names. A nil
// one does not exist, so no handle is of it.
func handleOf(routes *route.Snapshot, text []byte, t *route.Topic, g *route.Group) (receipt.Handle, error) {
	h, err := receipt.Decode(text, keyRing{routes})
	if err == nil && (t == nil || g == nil || h.Topic != t.ID || h.Group != g.ID) {
		err = errForeign
	}
	return h, err
}
