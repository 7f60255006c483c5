package state

import (
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Lengths of names, in characters.
const (
	TopicNameMax = 127
	GroupNameMax = 120
	ShardNameMax = 120
)

// systemTopics are names that the reference server keeps for itself; clients treat them as such.
var systemTopics = []string{
	"TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
	"RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC",
}

// CheckTopicName refuses names that a topic can't have.
func CheckTopicName(name string) error {
	if err := checkName("topic", name, TopicNameMax); err != nil {
		return err
	}
	if slices.Contains(systemTopics, name) || strings.HasPrefix(name, "rmq_sys_") {
		return mqerr.New(mqerr.Invalid, "topic %q is a reserved name: choose another one", name)
	}
	return nil
}

// Prefixes of the topics that brokers make for themselves.
const (
	DeadPrefix = "%DLQ%" // dead letters of a group
	TxnPrefix  = "%TXN%" // transactions of a topic that nobody has ended
)

// OwnTopic reports whether a topic is one that brokers make for themselves.
func OwnTopic(name string) bool {
	return strings.HasPrefix(name, DeadPrefix) || strings.HasPrefix(name, TxnPrefix)
}

// checkOwnTopic refuses names that a broker's own topic can't have. The name behind the prefix is a
// whole one, so these names may be longer than others.
func checkOwnTopic(name string) error {
	if group, ok := strings.CutPrefix(name, DeadPrefix); ok {
		return CheckGroupName(group)
	}
	if topic, ok := strings.CutPrefix(name, TxnPrefix); ok {
		return CheckTopicName(topic)
	}
	return mqerr.New(mqerr.Invalid, "topic %q is none of the broker's own: its name must start with %s or %s", name, DeadPrefix, TxnPrefix)
}

// CheckGroupName refuses names that a consumer group can't have.
func CheckGroupName(name string) error {
	if err := checkName("group", name, GroupNameMax); err != nil {
		return err
	}
	if strings.HasPrefix(name, "CID_RMQ_SYS_") {
		return mqerr.New(mqerr.Invalid, "group %q is a reserved name: names must not start with CID_RMQ_SYS_", name)
	}
	return nil
}

func checkName(what, name string, maxLen int) error {
	if name == "" {
		return mqerr.New(mqerr.Invalid, "the name of the %s is empty", what)
	}
	if len(name) > maxLen {
		return mqerr.New(mqerr.Invalid, "the name of the %s has %d characters, at most %d are allowed", what, len(name), maxLen)
	}
	for _, c := range []byte(name) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '%' || c == '|'
		if !ok {
			return mqerr.New(mqerr.Invalid, "the name of %s %q has a character other than letters, digits, _, -, %% and |", what, name)
		}
	}
	return nil
}
