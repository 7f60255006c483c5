package server

import (
	"context"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/failover"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// send is one SendMessage call. Its message slices alias the request, so it lives until the broker
// has answered; then it is used for another call.
type send struct {
	s      *Server
	call   call.Unary
	routes *route.Snapshot
	topic  *route.Topic
	req    wire.SendRequest
	out    brokerapi.SendRequest
	sys    []byte // system properties of all messages, rewritten
	// at is the index of the placement asked now, left how many others may be asked if it surely did
	// not store anything.
	at, left int
	// free says that it may choose its shard; passed, that it has passed over isolated ones, which were not asked.
	free, passed bool
	// patience is how often the first choice is asked again before others are.
	patience int
	asked    brokerapi.ShardID                 // the shard that was asked last
	done     func(*brokerapi.SendReply, error) // s.answered, made once
	try      failover.Try
	began    time.Time
	handed   time.Time // of a send that may choose, when its shard was asked last
	doubted  time.Time // when the first try was made that may have stored something, zero: none was
}

func (s *Server) newSend(c call.Unary) *send {
	d, ok := s.sends.Get().(*send)
	if !ok {
		d = &send{s: s}
		d.done = d.answered
	}
	d.call = c
	return d
}

// SendMessage stores messages of one topic. The call is completed by the broker.
func (s *Server) SendMessage(c call.Unary) {
	if _, r := clientID(c); r.given() {
		reject(c, r)
		return
	}
	if err := s.pressed(); err != nil {
		reject(c, s.outcome(RPCSendMessage, err))
		return
	}
	d := s.newSend(c)
	if err := d.req.Decode(c.Request()); err != nil {
		failDecode(c, err)
		d.release()
		return
	}
	now := s.o.Now()
	d.routes = s.o.Routes.Load()
	var name []byte
	if len(d.req.Messages) > 0 {
		name = d.req.Messages[0].Topic.Name
		d.topic = d.routes.Topic(name)
	}
	if r := s.o.Limits.checkSend(&d.req, d.topic, now); r.given() {
		d.refuse(r)
		return
	}
	if d.topic != nil {
		d.start(now)
		return
	}
	s.topicMissing(c, string(name), func(routes *route.Snapshot, t *route.Topic, err error) {
		if err != nil {
			d.refuse(s.outcome(RPCSendMessage, err))
			return
		}
		d.routes, d.topic = routes, t
		d.startNew(s.o.Now())
	})
}

// topicMissing makes the topic if that is allowed and goes on with what came of it, maybe later on
// another goroutine. A topic that is still missing is an error.
func (s *Server) topicMissing(c call.Info, name string, then func(*route.Snapshot, *route.Topic, error)) {
	missing := mqerr.New(mqerr.TopicNotFound, "topic %s does not exist", name)
	if s.o.Creator == nil || derivedTopic([]byte(name)) {
		then(nil, nil, missing)
		return
	}
	go func() { // waits for the controller, which a transport's goroutine must not
		ctx, cancel := context.WithDeadline(c.Context(), s.deadline(c))
		defer cancel()
		if err := s.o.Creator.EnsureTopic(ctx, name); err != nil {
			then(nil, nil, err)
			return
		}
		routes := s.o.Routes.Load()
		if t := routes.Topic([]byte(name)); t != nil {
			then(routes, t, nil)
			return
		}
		then(nil, nil, missing)
	}()
}

// deadline is until when a broker may take: the client's own deadline or, without one, a while.
func (s *Server) deadline(c call.Info) time.Time {
	if d, ok := c.Deadline(); ok {
		return d
	}
	return s.o.Now().Add(s.o.Limits.BrokerTimeout)
}

// startNew is start for a topic that was not known when the messages were checked: another client may have
// made it, with limits of its own.
func (d *send) startNew(now time.Time) {
	delay := d.s.o.Limits.delayOf(d.topic)
	for i := range d.req.Messages {
		if r := delay.check(&d.req.Messages[i], now); r.given() {
			d.refuse(r)
			return
		}
	}
	d.start(now)
}

// start checks the messages against their topic, completes them and hands them to a broker.
func (d *send) start(now time.Time) {
	for i := range d.req.Messages {
		if r := checkType(d.topic, typeOf(&d.req.Messages[i])); r.given() {
			d.refuse(r)
			return
		}
	}
	if r := checkTransaction(d.topic, &d.req); r.given() {
		d.refuse(r)
		return
	}
	if d.topic.Queues == 0 {
		d.refuse(refuse(rmqv2.Code_FORBIDDEN, "topic "+d.topic.Name+" has no queue"))
		return
	}
	d.prepare(now)
	shard, fixed, r := d.home()
	if r.given() {
		d.refuse(r)
		return
	}
	d.began = now
	d.out.Topic, d.out.Layout = d.topic.ID, d.topic.Layout
	d.out.Deadline = d.s.deadline(d.call)
	if fixed {
		d.left = 0
		d.to(shard)
		return
	}
	d.left = len(d.topic.Placements) - 1
	if d.out.Messages[0].Type == brokerapi.Transaction {
		d.at = transactionHome(d.topic, d.out.Messages[0].ID)
	} else {
		d.choose(now)
	}
	d.to(d.topic.Placements[d.at].Shard)
}

// choose takes the first choice that is not isolated, or the last one.
func (d *send) choose(now time.Time) {
	n := len(d.topic.Placements)
	d.free = n > 1
	for d.at = ranked(d.topic, d.out.Messages[0].ID, 0); d.left > 0 && d.s.o.Isolation.Avoid(d.topic.Placements[d.at].Shard, now); d.passed = true {
		d.left--
		d.at = ranked(d.topic, d.out.Messages[0].ID, n-1-d.left)
	}
	if d.left == n-1 {
		d.patience = d.s.o.Limits.patience(d.out.Deadline.Sub(now))
	}
}

// lite topic, if there are any.
// A request is stored as one, so all of them must live in one shard.
func (d *send) home() (shard brokerapi.ShardID, fixed bool, r refusal) {
	for i := range d.out.Messages {
		m := &d.out.Messages[i]
		var at brokerapi.ShardID
		queue := brokerapi.AnyQueue
		switch {
		case m.Lite != "":
			at = liteHome(d.topic, []byte(m.Lite))
		case m.GroupHash != 0:
			at, queue = d.topic.HomeOf(m.GroupHash)
		default:
			continue
		}
		if fixed && at != shard {
			return 0, true, refuse(rmqv2.Code_BAD_REQUEST,
				"the message groups or lite topics of this request live on different broker groups: send them in requests of their own")
		}
		shard, fixed, m.Queue = at, true, queue
	}
	return shard, fixed, refusal{}
}

// to hands the messages to a shard.
func (d *send) to(id brokerapi.ShardID) {
	d.asked = id
	h, err := d.s.shard(id)
	if err != nil {
		d.answered(nil, err)
		return
	}
	d.out.Epoch = h.epoch
	if d.free {
		d.handed = d.s.o.Now()
	}
	if d.doubted.IsZero() {
		d.out.Age = 0
	} else {
		d.out.Age = d.s.o.Now().Sub(d.doubted) + time.Millisecond
	}
	h.broker.Send(&d.out, d.done)
}

// again asks the same shard's next master. What may have been stored is recognised there by its message id, or refused
// if that is not sure; so it goes nowhere else.
func (d *send) again(err error) bool {
	if mqerr.Is(err, mqerr.UnknownOutcome) && d.doubted.IsZero() {
		d.doubted = d.began
	}
	c := failover.Call{Shard: d.asked, Deadline: d.out.Deadline, Repeat: true}
	return d.s.o.Masters.Again(c, &d.try, err, d.resume)
}

func (d *send) resume(err error) {
	if err != nil {
		d.refuse(d.s.outcome(RPCSendMessage, err))
		return
	}
	d.routes = d.s.o.Routes.Load()
	d.to(d.asked)
}

// askAgain asks the first choice again: it may have another master by now.
func (d *send) askAgain() {
	d.routes = d.s.o.Routes.Load()
	d.to(d.topic.Placements[d.at].Shard)
}

// next moves on to the next choice.
func (d *send) next() {
	n := len(d.topic.Placements)
	if d.out.Messages[0].Type == brokerapi.Transaction {
		d.at = (d.at + 1) % n
		return
	}
	d.at = ranked(d.topic, d.out.Messages[0].ID, n-1-d.left)
}

// answered completes the call, or tries the next shard where that is safe. It runs on the broker's
// goroutine and does not wait.
func (d *send) answered(reply *brokerapi.SendReply, err error) {
	if !d.handed.IsZero() {
		now := d.s.o.Now()
		d.s.o.Isolation.Sent(d.asked, now, now.Sub(d.handed), err != nil && mayReturn(err) || mqerr.Is(err, mqerr.UnknownOutcome))
		d.handed = time.Time{}
	}
	if err != nil && d.left > 0 && elsewhere(err) && !d.try.Unknown() {
		if d.patience > 0 && mayReturn(err) {
			d.patience--
			time.AfterFunc(d.s.o.Limits.homePause(), d.askAgain)
			return
		}
		d.patience = 0
		d.left--
		d.next()
		d.to(d.topic.Placements[d.at].Shard)
		return
	}
	if err != nil && d.passed && elsewhere(err) && !d.try.Unknown() { // better an isolated one than none
		d.passed, d.left = false, len(d.topic.Placements)-1
		d.at = ranked(d.topic, d.out.Messages[0].ID, 0)
		d.to(d.topic.Placements[d.at].Shard)
		return
	}
	if err != nil {
		if d.again(err) {
			return
		}
		err = d.try.Result(err)
	}
	if err == nil && len(reply.Results) != len(d.req.Messages) {
		err = mqerr.New(mqerr.Internal, "broker answered %d results for %d messages", len(reply.Results), len(d.req.Messages))
	}
	if err != nil {
		d.refuse(d.s.outcome(RPCSendMessage, err))
		return
	}
	if d.out.Messages[0].Type == brokerapi.Transaction { // who sends one is asked for its verdict
		if client, no := clientID(d.call); !no.given() {
			d.s.o.Clients.Produced(client, d.topic.Name, d.s.o.Now())
		}
	}
	d.call.Reply(d.reply(reply.Results))
	d.release()
}

func (d *send) refuse(r refusal) {
	reject(d.call, r)
	d.release()
}

// keptBytes bounds what a pooled send holds on to.
const (
	keptBytes    = 64 << 10
	keptMessages = 64
)

// release gives the send back for another call. The call must be completed.
func (d *send) release() {
	d.call, d.routes, d.topic = nil, nil, nil
	d.patience, d.free, d.passed = 0, false, false
	d.try, d.doubted, d.began, d.handed = failover.Try{}, time.Time{}, time.Time{}, time.Time{}
	d.req.Reset()
	clear(d.out.Messages)
	d.out = brokerapi.SendRequest{Messages: d.out.Messages[:0]}
	d.sys = d.sys[:0]
	if cap(d.sys) > keptBytes || cap(d.out.Messages) > keptMessages {
		return
	}
	d.s.sends.Put(d)
}
