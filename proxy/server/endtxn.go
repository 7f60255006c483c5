package server

import (
	"encoding/binary"

	"github.com/dchest/siphash"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/failover"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// transactionHome is the index of the placement on which the half message with an id is stored, unless its
// broker could not take it: any proxy finds the same, so that a message which is sent again meets the one
// that was stored, and a verdict its message (rendezvous hashing: every placement has a weight for the id,
// the highest wins).
func transactionHome(t *route.Topic, id []byte) int {
	best, weight := 0, uint64(0)
	hash := siphash.Hash(0, 1, id)
	for i := range t.Placements {
		var b [12]byte
		binary.LittleEndian.PutUint64(b[:], hash)
		binary.LittleEndian.PutUint32(b[8:], uint32(t.Placements[i].Shard))
		if w := siphash.Hash(2, 3, b[:]); i == 0 || w > weight {
			best, weight = i, w
		}
	}
	return best
}

// endTxn is one EndTransaction call. Its fields alias the request, which lives until the call is completed.
type endTxn struct {
	s      *Server
	call   call.Unary
	routes *route.Snapshot
	topic  *route.Topic
	req    wire.EndTransactionRequest
	out    brokerapi.EndTxnRequest
	at     int   // index of the placement asked now
	left   int   // placements that have not been asked
	failed error // of a placement that could not be asked: what the others do not know, it may
	away   int   // that placement
	try    failover.Try
}

// EndTransaction gives the verdict of a transaction. The transaction id is the message id; it is looked for
// where messages of this id are stored, then on the topic's other shards. Any proxy serves it, at any time.
func (s *Server) EndTransaction(c call.Unary) {
	client, no := clientID(c)
	if no.given() {
		reject(c, no)
		return
	}
	e := &endTxn{s: s, call: c}
	if err := e.req.Decode(c.Request()); err != nil {
		failDecode(c, err)
		return
	}
	s.o.Clients.Heard(client, s.o.Now())
	if no = e.check(); no.given() {
		reject(c, no)
		return
	}
	switch rmqv2.TransactionResolution(e.req.Resolution) {
	case rmqv2.TransactionResolution_COMMIT:
		e.out.Commit = true
	case rmqv2.TransactionResolution_ROLLBACK:
	default: // Go and Rust say so when their checker does not know: it is asked again
		c.Reply(okReply(0))
		return
	}
	e.start()
}

func (e *endTxn) check() refusal {
	if no := checkTopic(e.req.Topic.Name); no.given() {
		return no
	}
	if isBlank(e.req.TransactionID) {
		return refuse(rmqv2.Code_INVALID_TRANSACTION_ID, "the transaction id is blank")
	}
	return refusal{}
}

// errNoTransaction answers for topics that have none.
var errNoTransaction = mqerr.New(mqerr.NotFound, "there is no such transaction")

func (e *endTxn) start() {
	e.routes = e.s.o.Routes.Load()
	e.topic = e.routes.Topic(e.req.Topic.Name)
	if e.topic == nil || len(e.topic.Placements) == 0 {
		e.finish(errNoTransaction)
		return
	}
	e.out.Topic, e.out.ID, e.out.Source = e.topic.ID, e.req.TransactionID, brokerapi.TxnByClient
	if e.req.Source == int32(rmqv2.TransactionSource_SOURCE_SERVER_CHECK) {
		e.out.Source = brokerapi.TxnByCheck
	}
	e.out.Deadline = e.s.deadline(e.call)
	e.at, e.left = transactionHome(e.topic, e.out.ID), len(e.topic.Placements)-1
	e.ask()
}

func (e *endTxn) ask() {
	h, err := e.s.shard(e.topic.Placements[e.at].Shard)
	if err != nil {
		e.answered(nil, err)
		return
	}
	e.out.Epoch = h.epoch
	h.broker.EndTxn(&e.out, e.answered)
}

// answered completes the call, or asks the next shard if this one does not know the transaction.
func (e *endTxn) answered(_ *brokerapi.EndTxnReply, err error) {
	switch {
	case err == nil:
	case mqerr.Is(err, mqerr.NotFound), mqerr.Is(err, mqerr.TopicNotFound):
		if e.left > 0 {
			e.next()
			return
		}
	case elsewhere(err): // nothing was written there
		if e.failed == nil {
			e.failed, e.away = err, e.at
		}
		if e.left > 0 {
			e.next()
			return
		}
	}
	if e.failed != nil && (mqerr.Is(err, mqerr.NotFound) || mqerr.Is(err, mqerr.TopicNotFound)) {
		err, e.at = e.failed, e.away
	}
	if err != nil {
		c := failover.Call{Shard: e.topic.Placements[e.at].Shard, Deadline: e.out.Deadline, Repeat: true}
		if e.s.o.Masters.Again(c, &e.try, err, e.resume) {
			return
		}
		err = e.try.Result(err)
	}
	e.finish(err)
}

// resume asks the one that could not be asked again: a verdict that is given twice is one.
func (e *endTxn) resume(err error) {
	if err != nil {
		e.finish(err)
		return
	}
	e.failed, e.left = nil, 0
	e.ask()
}

func (e *endTxn) next() {
	e.left--
	e.at = (e.at + 1) % len(e.topic.Placements)
	e.ask()
}

func (e *endTxn) finish(err error) {
	if err != nil {
		reject(e.call, e.s.outcome(RPCEndTransaction, err))
		return
	}
	e.call.Reply(okReply(0))
}
