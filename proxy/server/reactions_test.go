package server

import (
	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// reaction is what the official clients do with a code of a call. Sources: the clients' own code and
// what was seen on the wire.
type reaction struct {
	rpc    RPC
	code   rmqv2.Code
	Java   string
	Go     string
	Python string
	Node   string
	Rust   string
	Cpp    string
	CSharp string
}

// sendFailure is what clients do with any failed send but throttling.
func sendFailure(code rmqv2.Code) reaction {
	return reaction{
		RPCSendMessage, code,
		"tries 3 times at once, avoids the endpoint until a good heartbeat, then throws",
		"tries max_attempts times at once, avoids the endpoint, then an error",
		"tries 3 times at once, then raises",
		"tries 3 times at once (transactions once), then throws",
		"an error at once",
		"tries 3 times at once, then an error",
		"tries 3 times at once, avoids the endpoint, then throws",
	}
}

func receiveFailure(code rmqv2.Code) reaction {
	return reaction{
		RPCReceiveMessage, code,
		"push polls again after 1 s; simple throws", "push polls again after 20 ms; simple returns an error",
		"push polls again after 1 s; simple raises", "push polls again after 1 s; simple throws, after up to 3 tries on HA_NOT_AVAILABLE and internal errors",
		"an error at once, the caller polls again", "push polls again after 1 s; simple returns an error",
		"push polls again after 1 s; simple throws",
	}
}

// ackFailure is what clients do with any failed ack or change but INVALID_RECEIPT_HANDLE.
func ackFailure(rpc RPC, code rmqv2.Code) reaction {
	return reaction{
		rpc, code,
		"push repeats every 1 s for ever; simple throws", "push repeats every 1 s for ever; simple ack hides it, change returns an error",
		"push repeats every 1 s for ever; simple raises", "push repeats every 1 s for ever; simple throws",
		"an error at once", "push repeats every 1 s for ever; simple returns an error", "push repeats every 1 s for ever; simple throws",
	}
}

// forwardFailure is what push consumers do when a message does not go to the dead letters.
func forwardFailure(code rmqv2.Code) reaction {
	return everyClient(RPCForwardMessage, code, "push repeats every 1 s for ever and goes on with its message group only then; simple consumers do not call it")
}

func everyClient(rpc RPC, code rmqv2.Code, does string) reaction {
	return reaction{rpc, code, does, does, does, does, does, does, does}
}

// startFailure is for routes and assignments.
func startFailure(code rmqv2.Code) []reaction {
	return []reaction{
		{
			RPCQueryRoute, code,
			"at the start 3 tries, then it throws; later the old route stays", "an error at the first use; later the old route stays",
			"raises at the first use; later the old route stays", "start fails; later the old route stays",
			"an error at the first use", "an error at the first use; later the old route stays", "throws at the first use; later the old route stays",
		},
		everyClient(RPCQueryAssignment, code, "keeps the assignment it has and asks again after 5 s (Rust has no push consumer)"),
	}
}

// reactions has a row for every code that a call can answer to an internal failure.
var reactions = func() []reaction {
	var all []reaction
	for _, code := range []rmqv2.Code{
		rmqv2.Code_INTERNAL_SERVER_ERROR, rmqv2.Code_BAD_REQUEST, rmqv2.Code_TOPIC_NOT_FOUND, rmqv2.Code_CONSUMER_GROUP_NOT_FOUND,
		rmqv2.Code_NOT_FOUND, rmqv2.Code_INVALID_RECEIPT_HANDLE, rmqv2.Code_PRECONDITION_FAILED, rmqv2.Code_HA_NOT_AVAILABLE,
		rmqv2.Code_PROXY_TIMEOUT, rmqv2.Code_UNSUPPORTED, rmqv2.Code_UNAUTHORIZED,
	} {
		all = append(all, startFailure(code)...)
		all = append(all, sendFailure(code), receiveFailure(code))
		if code != rmqv2.Code_INVALID_RECEIPT_HANDLE {
			all = append(all, ackFailure(RPCAckMessage, code), ackFailure(RPCChangeInvisibleDuration, code), forwardFailure(code))
		}
	}
	for _, rpc := range []RPC{RPCAckMessage, RPCChangeInvisibleDuration} {
		all = append(all, reaction{
			rpc, rmqv2.Code_INVALID_RECEIPT_HANDLE,
			"push gives up; simple throws", "push gives up; simple ack hides it, change returns an error", "push gives up; simple raises",
			"push gives up; simple throws", "an error at once", "push gives up; simple returns an error", "push gives up; simple throws",
		}, ackFailure(rpc, rmqv2.Code_TOO_MANY_REQUESTS))
	}
	all = append(all, forwardFailure(rmqv2.Code_TOO_MANY_REQUESTS), everyClient(RPCForwardMessage, rmqv2.Code_INVALID_RECEIPT_HANDLE, "push repeats every 1 s, most of them for ever; simple consumers do not call it"))
	all = append(all, startFailure(rmqv2.Code_TOO_MANY_REQUESTS)...)
	all = append(all, reaction{
		RPCSendMessage, rmqv2.Code_TOO_MANY_REQUESTS,
		"3 tries with the backoff of the settings between them, then throws", "max_attempts tries with backoff, then an error", "raises at once",
		"3 tries with backoff, then throws", "an error at once", "3 tries with backoff, then an error", "3 tries with backoff, then throws",
	}, reaction{
		RPCReceiveMessage, rmqv2.Code_TOO_MANY_REQUESTS,
		"push polls again after 20 ms; simple throws", "push polls again after 1 s; simple returns an error", "push polls again after 1 s; simple raises",
		"push polls again after 20 ms; simple throws", "an error at once, the caller polls again", "push polls again after 20 ms; simple returns an error",
		"push polls again after 20 ms, sometimes 1 s; simple throws",
	})
	all = append(all, everyClient(RPCSendMessage, rmqv2.Code_LITE_TOPIC_QUOTA_EXCEEDED, "that sends to lite topics tries again as after any failure, then throws"),
		everyClient(RPCSyncLiteSubscription, rmqv2.Code_LITE_SUBSCRIPTION_QUOTA_EXCEEDED, "with lite topics throws when a program subscribes (C# with an error of its own: it does not know the code)"))
	for _, code := range allCodes() {
		all = append(all, everyClient(RPCSyncLiteSubscription, code, "with lite topics throws when a program subscribes, and logs it in the repetition every 30 s, which goes on"))
	}
	for _, rpc := range []RPC{RPCHeartbeat, RPCNotifyClientTermination} {
		for _, code := range allCodes() {
			does := "logs it; its next heartbeat comes as usual (only OK ends the isolation of an endpoint)"
			if rpc == RPCNotifyClientTermination {
				does = "logs it and goes away (Go and C++ never make the call)"
			}
			all = append(all, everyClient(rpc, code, does))
		}
	}
	for _, code := range append(allCodes(), rmqv2.Code_INVALID_TRANSACTION_ID) {
		all = append(all, reaction{
			RPCEndTransaction, code,
			"throws; an answer to a check is logged, and the check comes again if the transaction is open", "hides it; the check comes if the transaction is open",
			"raises; as Java for an answer to a check", "throws; as Java for an answer to a check", "an error; as Java for an answer to a check",
			"returns an error; as Java for an answer to a check", "throws; as Java for an answer to a check",
		})
	}
	for _, code := range allCodes() {
		all = append(all, reaction{
			RPCRecallMessage, code,
			"throws at once", "does not make the call", "raises at once", "throws at once", "does not make the call", "an error at once", "throws at once",
		})
	}
	for _, rpc := range pullCalls {
		codes := append(allCodes(), rmqv2.Code_ILLEGAL_OFFSET, rmqv2.Code_OFFSET_NOT_FOUND)
		for _, code := range codes {
			all = append(all, everyClient(rpc, code, "leaves it to the program (no official client makes the call by itself)"))
		}
	}
	for _, code := range allCodes() {
		all = append(all, reaction{
			RPCTelemetry, code,
			"opens it again after 1 s; a start fails in time", "opens it again within 5 min; a start waits", "opens it again within 10 min; a push consumer's start fails after 10 s",
			"opens it again after 1 s; a start waits", "opens it again after 30 s; a start waits", "opens it again after 1 s; a start tries every 3 s",
			"never opens it again, goes on without",
		})
	}
	return all
}()

// pullCalls are calls that no official client makes by itself. They may answer codes that are newer than
// Rust 5.0.0.
var pullCalls = []RPC{RPCPullMessage, RPCUpdateOffset, RPCGetOffset, RPCQueryOffset}

// allCodes lists each code of the table once, in the order of the kinds.
func allCodes() []rmqv2.Code {
	var codes []rmqv2.Code
	seen := map[rmqv2.Code]bool{}
	for _, kind := range mqerr.Kinds() {
		if code := outcomes[kind].code; !seen[code] {
			seen[code] = true
			codes = append(codes, code)
		}
	}
	return codes
}
