package server

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// Bounds on names, in characters. Legal names are ASCII.
const (
	topicNameMax = 127
	groupNameMax = 120
)

// txnPrefix starts the names of topics that take the unanswered transactions of another topic, whose
// name follows and may be as long as any.
const txnPrefix = "%TXN%"

// systemTopics are names that the reference server keeps for itself. Clients may not use them, so
// that a program moved here does not find something else under them.
var systemTopics = map[string]bool{
	"TBW102": true, "SCHEDULE_TOPIC_XXXX": true, "BenchmarkTest": true, "RMQ_SYS_TRANS_HALF_TOPIC": true,
	"RMQ_SYS_TRACE_TOPIC": true, "RMQ_SYS_TRANS_OP_HALF_TOPIC": true, "TRANS_CHECK_MAX_TIME_TOPIC": true,
	"SELF_TEST_TOPIC": true, "OFFSET_MOVED_EVENT": true, "CHECKPOINT_TOPIC": true,
}

// checkTopic says what is wrong with a topic's name, if anything.
func checkTopic(name []byte) refusal {
	switch {
	case isBlank(name):
		return refuse(rmqv2.Code_ILLEGAL_TOPIC, "the topic's name is blank")
	case utf8.RuneCount(bytes.TrimPrefix(name, []byte(txnPrefix))) > topicNameMax:
		return refuse(rmqv2.Code_ILLEGAL_TOPIC, fmt.Sprintf("the topic's name is longer than %d characters", topicNameMax))
	case !legalName(name):
		return refuse(rmqv2.Code_ILLEGAL_TOPIC, fmt.Sprintf("topic %q has characters other than letters, digits, _, -, %% and |", name))
	case systemTopics[string(name)], bytes.HasPrefix(name, []byte("rmq_sys_")):
		return refuse(rmqv2.Code_ILLEGAL_TOPIC, fmt.Sprintf("topic %s is reserved for the system", name))
	}
	return refusal{}
}

// checkGroup says what is wrong with a consumer group's name, if anything.
func checkGroup(name []byte) refusal {
	switch {
	case isBlank(name):
		return refuse(rmqv2.Code_ILLEGAL_CONSUMER_GROUP, "the consumer group's name is blank")
	case utf8.RuneCount(name) > groupNameMax:
		return refuse(rmqv2.Code_ILLEGAL_CONSUMER_GROUP, fmt.Sprintf("the consumer group's name is longer than %d characters", groupNameMax))
	case !legalName(name):
		return refuse(rmqv2.Code_ILLEGAL_CONSUMER_GROUP, fmt.Sprintf("consumer group %q has characters other than letters, digits, _, -, %% and |", name))
	case bytes.HasPrefix(name, []byte("CID_RMQ_SYS_")):
		return refuse(rmqv2.Code_ILLEGAL_CONSUMER_GROUP, fmt.Sprintf("consumer group %s is reserved for the system", name))
	}
	return refusal{}
}

// derivedTopic reports whether a topic belongs to a consumer group or another topic: such topics are
// never made because somebody names them.
func derivedTopic(name []byte) bool {
	return bytes.HasPrefix(name, []byte("%RETRY%")) || bytes.HasPrefix(name, []byte("%DLQ%")) || bytes.HasPrefix(name, []byte(txnPrefix))
}

func legalName(name []byte) bool {
	for _, c := range name {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_', c == '-', c == '%', c == '|':
		default:
			return false
		}
	}
	return true
}

// isBlank reports whether text is empty or only white space.
func isBlank(text []byte) bool {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if !unicode.IsSpace(r) {
			return false
		}
		i += n
	}
	return true
}

// hasControl reports whether text has an ISO control character: U+0000 to U+001F, U+007F to U+009F.
func hasControl(text []byte) bool {
	for i := range text {
		switch c := text[i]; {
		case c < 0x20, c == 0x7f:
			return true
		case c == 0xc2 && i+1 < len(text) && text[i+1] < 0xa0: // U+0080 to U+009F in UTF-8
			return true
		}
	}
	return false
}
