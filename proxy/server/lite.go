package server

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/receipt"
	"github.com/perigee-mq/perigee/proxy/route"
)

// checkLiteTopic says what is wrong with the name of a lite topic, if anything.
func (l *Limits) checkLiteTopic(name []byte) refusal {
	switch {
	case isBlank(name):
		return refuse(rmqv2.Code_ILLEGAL_LITE_TOPIC, "the name of the lite topic is blank")
	case utf8.RuneCount(name) > l.LiteTopicSize:
		return refuse(rmqv2.Code_ILLEGAL_LITE_TOPIC, fmt.Sprintf("the name of the lite topic is longer than %d characters", l.LiteTopicSize))
	case bytes.ContainsFunc(name, func(r rune) bool { return !legalLite(r) }):
		return refuse(rmqv2.Code_ILLEGAL_LITE_TOPIC, "the name of a lite topic has only letters, digits, - and _")
	}
	return refusal{}
}

func legalLite(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

// liteHome is the shard of a lite topic: all its messages are there, in order. It depends on the name and
// the parent's list of queues, which never changes.
func liteHome(parent *route.Topic, name []byte) brokerapi.ShardID {
	shard, _ := parent.HomeOf(brokerapi.HashGroup(name))
	return shard
}

// firstLite is the lowest queue id of a lite topic, as brokers give it.
const firstLite brokerapi.QueueID = 1 << 16

var errNotLite = mqerr.New(mqerr.HandleInvalid, "the receipt handle is not of a message of a lite topic")

// checkLiteHandle refuses a lite topic that is given for a message that has none.
func checkLiteHandle(h *receipt.Handle, name []byte) error {
	if len(name) > 0 && h.Queue < firstLite {
		return errNotLite
	}
	return nil
}
