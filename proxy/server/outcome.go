package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// RPC is a call of the public service, for the table of outcomes.
type RPC uint8

// The calls that are served, in the order of docs/outcomes.md.
const (
	RPCQueryRoute RPC = iota
	RPCQueryAssignment
	RPCSendMessage
	RPCReceiveMessage
	RPCAckMessage
	RPCChangeInvisibleDuration
	RPCForwardMessage
	RPCRecallMessage
	RPCHeartbeat
	RPCNotifyClientTermination
	RPCTelemetry
	RPCPullMessage
	RPCUpdateOffset
	RPCGetOffset
	RPCQueryOffset
	RPCEndTransaction
	RPCSyncLiteSubscription
	numRPCs
)

var rpcNames = [numRPCs]string{
	"QueryRoute", "QueryAssignment", "SendMessage", "ReceiveMessage", "AckMessage", "ChangeInvisibleDuration",
	"ForwardMessageToDeadLetterQueue", "RecallMessage",
	"Heartbeat", "NotifyClientTermination", "Telemetry",
	"PullMessage", "UpdateOffset", "GetOffset", "QueryOffset",
	"EndTransaction", "SyncLiteSubscription",
}

// String returns the call's name.
func (r RPC) String() string { return rpcNames[r] }

// answer is what an internal outcome becomes. An empty text means the error's own; a fixed one hides
// what a stranger need not see, which the log then has.
type answer struct {
	code rmqv2.Code
	text string
	why  string // for docs/outcomes.md
}

const internalText = "internal error: the proxy's log tells more"

// outcomes is the answer of every kind of failure where no exception says otherwise. No code here is
// newer than the oldest client in use: Rust 5.0.0 panics on a code that it does not know.
var outcomes = map[mqerr.Kind]answer{
	mqerr.Internal:          {rmqv2.Code_INTERNAL_SERVER_ERROR, internalText, "our bug; the log has the text"},
	mqerr.Invalid:           {rmqv2.Code_BAD_REQUEST, "", "the request is wrong; the same again fails again"},
	mqerr.TopicNotFound:     {rmqv2.Code_TOPIC_NOT_FOUND, "", "no such topic"},
	mqerr.GroupNotFound:     {rmqv2.Code_CONSUMER_GROUP_NOT_FOUND, "", "no such consumer group"},
	mqerr.NotFound:          {rmqv2.Code_NOT_FOUND, "", "something else that was asked for does not exist"},
	mqerr.HandleInvalid:     {rmqv2.Code_INVALID_RECEIPT_HANDLE, "", "the only code that ends the retries of push consumers"},
	mqerr.Exists:            {rmqv2.Code_PRECONDITION_FAILED, "", "a different thing of that name is there"},
	mqerr.NotLeader:         {rmqv2.Code_HA_NOT_AVAILABLE, "", "nothing was written; the route is about to change"},
	mqerr.Fenced:            {rmqv2.Code_HA_NOT_AVAILABLE, "", "nothing was written; another broker leads now"},
	mqerr.Draining:          {rmqv2.Code_HA_NOT_AVAILABLE, "", "nothing was written; another process takes it"},
	mqerr.NotEnoughReplicas: {rmqv2.Code_HA_NOT_AVAILABLE, "", "nothing was written; too few replicas to promise anything"},
	mqerr.DiskFull:          {rmqv2.Code_TOO_MANY_REQUESTS, "", "nothing was written; slowing down is all a client can do"},
	mqerr.Exhausted:         {rmqv2.Code_TOO_MANY_REQUESTS, "", "nothing was written; a bound was reached"},
	mqerr.Unavailable:       {rmqv2.Code_HA_NOT_AVAILABLE, "", "nothing was written; the broker cannot be reached"},
	mqerr.UnknownOutcome:    {rmqv2.Code_PROXY_TIMEOUT, "", "it may or may not have taken effect; a retry has the same message id or handle"},
	mqerr.Timeout:           {rmqv2.Code_PROXY_TIMEOUT, "", "the deadline passed before anything was started"},
	mqerr.Cancelled:         {rmqv2.Code_PROXY_TIMEOUT, "", "the caller went away; nobody reads it"},
	mqerr.Corrupt:           {rmqv2.Code_INTERNAL_SERVER_ERROR, "stored data is damaged: the broker's log tells more", "the damaged record is never returned"},
	mqerr.Unsupported:       {rmqv2.Code_UNSUPPORTED, "", "this release cannot do that"},
	mqerr.QuotaExceeded:     {rmqv2.Code_TOO_MANY_REQUESTS, "", "nothing was written; only less use helps"},
	mqerr.Denied:            {rmqv2.Code_UNAUTHORIZED, "", "clients know UNAUTHORIZED for both, who and what"},
}

// pauses are what callers are asked for who met a bound: in the text of the status, and in the trailer
// retry-after-ms. A quota has none: time does not help.
var pauses = map[mqerr.Kind]time.Duration{
	mqerr.Exhausted: time.Second,
	mqerr.DiskFull:  5 * time.Second, // segments go by the minute
}

type outcomeKey struct {
	kind mqerr.Kind
	rpc  RPC
}

// exceptions are the answers that differ for one call.
var exceptions = map[outcomeKey]answer{
	{mqerr.TopicNotFound, RPCAckMessage}:              deadHandle,
	{mqerr.GroupNotFound, RPCAckMessage}:              deadHandle,
	{mqerr.NotFound, RPCAckMessage}:                   deadHandle,
	{mqerr.TopicNotFound, RPCChangeInvisibleDuration}: deadHandle,
	{mqerr.GroupNotFound, RPCChangeInvisibleDuration}: deadHandle,
	{mqerr.NotFound, RPCChangeInvisibleDuration}:      deadHandle,
	{mqerr.Invalid, RPCPullMessage}:                   illegalOffset,
	{mqerr.Invalid, RPCUpdateOffset}:                  illegalOffset,
	{mqerr.NotFound, RPCGetOffset}:                    {rmqv2.Code_OFFSET_NOT_FOUND, "", "none was stored, and the group has received nothing"},
	{mqerr.TopicNotFound, RPCForwardMessage}:          deadHandle,
	{mqerr.GroupNotFound, RPCForwardMessage}:          deadHandle,
	{mqerr.NotFound, RPCForwardMessage}:               deadHandle,
	{mqerr.NotFound, RPCEndTransaction}:               noTransaction,
	{mqerr.TopicNotFound, RPCEndTransaction}:          noTransaction,
	{mqerr.Invalid, RPCEndTransaction}:                {rmqv2.Code_PRECONDITION_FAILED, "", "the transaction has another verdict already, which stands"},
	{mqerr.QuotaExceeded, RPCSendMessage}: {
		rmqv2.Code_LITE_TOPIC_QUOTA_EXCEEDED, "", "only a message of a lite topic meets it, and clients that send those know the code",
	},
	{mqerr.QuotaExceeded, RPCSyncLiteSubscription}: {
		rmqv2.Code_LITE_SUBSCRIPTION_QUOTA_EXCEEDED, "", "clients with lite topics know the code",
	},
	{mqerr.DiskFull, RPCReceiveMessage}: {
		rmqv2.Code_HA_NOT_AVAILABLE, "",
		"Java, Node, C++ and C# poll again after 20 ms when told TOO_MANY_REQUESTS, after 1 s on an error",
	},
}

var illegalOffset = answer{rmqv2.Code_ILLEGAL_OFFSET, "", "all that the broker finds wrong with one of these is its offset"}

var noTransaction = answer{rmqv2.Code_INVALID_TRANSACTION_ID, "", "there is no such transaction on that topic, or it was ended long ago"}

var deadHandle = answer{rmqv2.Code_INVALID_RECEIPT_HANDLE, "", "what the handle named is gone: any other code is retried for ever"}

// outcomeOf returns the public answer to a failure of a call.
func outcomeOf(rpc RPC, err error) refusal {
	kind := mqerr.KindOf(err)
	a := answerFor(kind, rpc)
	r := refusal{code: a.code, text: cmp.Or(a.text, err.Error()), pause: pauses[kind]}
	if r.pause > 0 {
		r.text += fmt.Sprintf(" (retry after %d ms)", r.pause.Milliseconds())
	}
	return r
}

func answerFor(kind mqerr.Kind, rpc RPC) answer {
	if a, ok := exceptions[outcomeKey{kind, rpc}]; ok {
		return a
	}
	if a, ok := outcomes[kind]; ok {
		return a
	}
	return outcomes[mqerr.Internal]
}

// outcome is outcomeOf, and logs what the answer hides.
func (s *Server) outcome(rpc RPC, err error) refusal {
	switch mqerr.KindOf(err) {
	case mqerr.Internal, mqerr.Corrupt:
		s.o.Log.LogAttrs(context.Background(), slog.LevelError, "call failed by a fault inside, its caller was told so; if data is damaged look at the broker's log, else report this line",
			slog.String("rpc", rpc.String()), slog.Any("error", err))
	}
	return outcomeOf(rpc, err)
}
