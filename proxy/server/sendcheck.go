package server

import (
	"bytes"
	"fmt"
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/proxy/route"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// checkSend says what is wrong with a send as such. The order of the checks is the reference
// server's: the first one that fails decides for the whole request. A topic that is not known is nil.
func (l *Limits) checkSend(req *wire.SendRequest, topic *route.Topic, now time.Time) refusal {
	if len(req.Messages) == 0 {
		return refuse(rmqv2.Code_MESSAGE_CORRUPTED, "the request has no message")
	}
	first := &req.Messages[0].Topic
	if r := checkTopic(first.Name); r.given() {
		return r
	}
	total := 0
	for i := range req.Messages {
		m := &req.Messages[i]
		if !bytes.Equal(m.Topic.Name, first.Name) || !bytes.Equal(m.Topic.Namespace, first.Namespace) {
			return refuse(rmqv2.Code_MESSAGE_CORRUPTED, "the messages of a request must have the same topic")
		}
		total += len(m.Body)
	}
	delay := l.delayOf(topic)
	for i := range req.Messages {
		if r := l.checkMessage(&req.Messages[i], delay, now); r.given() {
			return r
		}
	}
	if total > l.BatchBytes {
		return refuse(rmqv2.Code_PAYLOAD_TOO_LARGE, fmt.Sprintf("the bodies of a request have %d bytes, the limit is %d", total, l.BatchBytes))
	}
	return refusal{}
}

func (l *Limits) checkMessage(m *wire.SendMessage, delay delayLimit, now time.Time) refusal {
	switch {
	case len(m.Body) == 0:
		return refuse(rmqv2.Code_MESSAGE_BODY_EMPTY, "the message has no body")
	case len(m.Body) > l.BodyBytes:
		return refuse(rmqv2.Code_MESSAGE_BODY_TOO_LARGE, fmt.Sprintf("the body has %d bytes, the limit is %d", len(m.Body), l.BodyBytes))
	case m.Properties > l.Properties:
		return refuse(rmqv2.Code_MESSAGE_PROPERTIES_TOO_LARGE, fmt.Sprintf("the message has %d properties, the limit is %d", m.Properties, l.Properties))
	}
	if r := checkProperties(m); r.given() {
		return r
	}
	if r := checkTag(m.Tag); r.given() {
		return r
	}
	if r := checkKeys(m); r.given() {
		return r
	}
	switch {
	case m.PropertyBytes() > l.PropertyBytes:
		return refuse(rmqv2.Code_MESSAGE_PROPERTIES_TOO_LARGE,
			fmt.Sprintf("properties, tag and keys have %d bytes, the limit is %d", m.PropertyBytes(), l.PropertyBytes))
	case m.SystemBytes() > l.SystemBytes:
		return refuse(rmqv2.Code_MESSAGE_PROPERTIES_TOO_LARGE,
			fmt.Sprintf("the system properties have %d bytes, the limit is %d", m.SystemBytes(), l.SystemBytes))
	case isBlank(m.MessageID):
		return refuse(rmqv2.Code_ILLEGAL_MESSAGE_ID, "the message id is blank")
	}
	if r := l.checkTimes(m, delay, now); r.given() {
		return r
	}
	if len(m.LiteTopic) > 0 {
		if r := l.checkLiteTopic(m.LiteTopic); r.given() {
			return r
		}
	}
	return l.checkMessageGroup(m.Group)
}

func checkProperties(m *wire.SendMessage) refusal {
	all := wire.UserProperties(m.User)
	for {
		key, value, ok := all.Next()
		switch {
		case !ok:
			return refusal{}
		case reservedProperties[string(key)]:
			return refuse(rmqv2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, fmt.Sprintf("property %s is reserved for the system", key))
		case hasControl(key):
			return refuse(rmqv2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, fmt.Sprintf("the key of property %q has a control character", key))
		case hasControl(value):
			return refuse(rmqv2.Code_ILLEGAL_MESSAGE_PROPERTY_KEY, fmt.Sprintf("the value of property %q has a control character", key))
		}
	}
}

func checkTag(tag []byte) refusal {
	switch {
	case len(tag) == 0:
		return refusal{}
	case isBlank(tag):
		return refuse(rmqv2.Code_ILLEGAL_MESSAGE_TAG, "the tag is only white space")
	case bytes.IndexByte(tag, '|') >= 0:
		return refuse(rmqv2.Code_ILLEGAL_MESSAGE_TAG, "the tag has a |, which separates tags in filters")
	case hasControl(tag):
		return refuse(rmqv2.Code_ILLEGAL_MESSAGE_TAG, "the tag has a control character")
	}
	return refusal{}
}

func checkKeys(m *wire.SendMessage) refusal {
	keys := m.Keys()
	for {
		key, ok := keys.Next()
		switch {
		case !ok:
			return refusal{}
		case len(key) == 0:
		case isBlank(key):
			return refuse(rmqv2.Code_ILLEGAL_MESSAGE_KEY, "a key is only white space")
		case hasControl(key):
			return refuse(rmqv2.Code_ILLEGAL_MESSAGE_KEY, "a key has a control character")
		}
	}
}

// checkTimes checks everything of a message that is a number: recovery duration, delivery time, born
// time, priority.
func (l *Limits) checkTimes(m *wire.SendMessage, delay delayLimit, now time.Time) refusal {
	if m.MessageType == int32(brokerapi.Transaction) && m.Recovery.Duration() > l.RecoveryMax {
		return refuse(rmqv2.Code_BAD_REQUEST, fmt.Sprintf("the recovery duration of a transaction is longer than %v", l.RecoveryMax))
	}
	if r := delay.check(m, now); r.given() {
		return r
	}
	if _, ok := m.Born.UnixMillis(); !ok {
		return refuse(rmqv2.Code_BAD_REQUEST, "the born time is no time")
	}
	if m.Priority < 0 {
		return refuse(rmqv2.Code_BAD_REQUEST, "the priority is below 0")
	}
	return refusal{}
}

func (l *Limits) checkMessageGroup(group []byte) refusal {
	switch {
	case len(group) == 0:
		return refusal{}
	case isBlank(group):
		return refuse(rmqv2.Code_ILLEGAL_MESSAGE_GROUP, "the message group is only white space")
	case len(group) > l.GroupNameBytes:
		return refuse(rmqv2.Code_ILLEGAL_MESSAGE_GROUP, fmt.Sprintf("the message group has %d bytes, the limit is %d", len(group), l.GroupNameBytes))
	case hasControl(group):
		return refuse(rmqv2.Code_ILLEGAL_MESSAGE_GROUP, "the message group has a control character")
	}
	return refusal{}
}

// typeOf derives a message's type. What the client calls it counts only for a transaction.
func typeOf(m *wire.SendMessage) brokerapi.MessageType {
	switch {
	case m.MessageType == int32(brokerapi.Transaction):
		return brokerapi.Transaction
	case m.DeliverAt.Set:
		return brokerapi.Delay
	case len(m.Group) > 0:
		return brokerapi.FIFO
	case m.HasPriority:
		return brokerapi.Priority
	case len(m.LiteTopic) > 0:
		return brokerapi.Lite
	}
	return brokerapi.Normal
}

// checkType says whether a message fits its topic.
func checkType(t *route.Topic, typ brokerapi.MessageType) refusal {
	if !derivedTopic([]byte(t.Name)) && !t.Type.Accepts(typ) {
		return refuse(rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
			fmt.Sprintf("topic %s does not take messages of type %s", t.Name, rmqv2.MessageType(typ)))
	}
	return refusal{}
}

// checkTransaction says whether the messages of a request can be half messages, if one of them is.
func checkTransaction(t *route.Topic, req *wire.SendRequest) refusal {
	for i := range req.Messages {
		m := &req.Messages[i]
		switch {
		case typeOf(m) != brokerapi.Transaction:
		case len(req.Messages) > 1:
			return refuse(rmqv2.Code_BAD_REQUEST, "a transactional message goes in a request of its own")
		case m.DeliverAt.Set:
			return refuse(rmqv2.Code_BAD_REQUEST, "a transactional message cannot have a delivery time")
		case derivedTopic([]byte(t.Name)):
			return refuse(rmqv2.Code_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "topic "+t.Name+" is the server's own: it takes no transactions")
		}
	}
	return refusal{}
}
