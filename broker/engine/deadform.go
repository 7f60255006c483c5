package engine

import (
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perigee-mq/perigee/store/record"
)

// User properties that a dead letter has for its readers beside those of the message. They are not
// stored: the DEAD record says what they say.
const (
	propertyReason   = "DEAD_LETTER_REASON"         // see reasonNames
	propertyAttempts = "DEAD_LETTER_ATTEMPTS"       // deliveries
	propertyFirst    = "DEAD_LETTER_FIRST_DELIVERY" // ms since 1970; missing if it is not known
	propertyLast     = "DEAD_LETTER_LAST_DELIVERY"  // ms since 1970; missing if it is not known
)

// reasonNames are the values of propertyReason.
var reasonNames = map[record.DeadReason]string{
	record.DeadMaxAttempts: "attempts used up",
	record.DeadByClient:    "forwarded by consumer",
	record.DeadByOperator:  "moved by operator",
}

// reasonNoAnswer is the value of propertyReason of a transaction that nobody has ended.
const reasonNoAnswer = "transaction not ended"

// withReason is the user properties of a dead letter as its readers see them. What was moved back by an
// operator is the old message: it has its own properties only.
func withReason(d *record.Dead) []byte {
	if d.Reason == record.DeadByOperator {
		return d.Msg.User
	}
	dst := append(make([]byte, 0, len(d.Msg.User)+192), d.Msg.User...)
	dst = appendProperty(dst, propertyReason, reasonNames[d.Reason])
	dst = appendProperty(dst, propertyAttempts, strconv.FormatUint(uint64(d.Attempts), 10))
	if n := len(d.History); n > 0 {
		if n >= int(d.Attempts) {
			dst = appendProperty(dst, propertyFirst, strconv.FormatInt(d.History[0].Time, 10))
		}
		dst = appendProperty(dst, propertyLast, strconv.FormatInt(d.History[n-1].Time, 10))
	}
	return dst
}

// Numbers of the fields of the public protocol that are written here.
const (
	userPropertiesField  = 2  // of Message
	deadLetterQueueField = 20 // of SystemProperties
)

// appendProperty appends one entry of Message.user_properties.
func appendProperty(dst []byte, key, value string) []byte {
	dst = protowire.AppendTag(dst, userPropertiesField, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(protowire.SizeTag(1)+protowire.SizeBytes(len(key))+protowire.SizeTag(2)+protowire.SizeBytes(len(value))))
	return appendPair(dst, key, value)
}

// appendPair appends a message of two texts, fields 1 and 2.
func appendPair(dst []byte, one, two string) []byte {
	dst = protowire.AppendString(protowire.AppendTag(dst, 1, protowire.BytesType), one)
	return protowire.AppendString(protowire.AppendTag(dst, 2, protowire.BytesType), two)
}

// withoutAnswer is a transaction that was given up as its readers see it: with the topic that it came from
// and the reason.
func withoutAnswer(m record.Msg, topic string) record.Msg {
	m.User = appendProperty(append(make([]byte, 0, len(m.User)+64), m.User...), propertyReason, reasonNoAnswer)
	m.Sys = withOrigin(m.Sys, topic, m.ID)
	return m
}

// withOrigin is encoded SystemProperties that say where a dead letter came from.
func withOrigin(sys []byte, topic string, id []byte) []byte {
	pair := appendPair(nil, topic, string(id))
	dst := append(make([]byte, 0, len(sys)+len(pair)+8), withoutOrigin(sys)...)
	dst = protowire.AppendTag(dst, deadLetterQueueField, protowire.BytesType)
	return protowire.AppendBytes(dst, pair)
}

// withoutOrigin is encoded SystemProperties without the field that withOrigin adds. The bytes were
// checked when the message came in; what is malformed stays as it is.
func withoutOrigin(sys []byte) []byte {
	var dst []byte // nil until something is left out
	for at := 0; at < len(sys); {
		num, _, n := protowire.ConsumeField(sys[at:])
		if n < 0 {
			return sys
		}
		switch {
		case num == deadLetterQueueField && dst == nil:
			dst = append(make([]byte, 0, len(sys)), sys[:at]...)
		case num != deadLetterQueueField && dst != nil:
			dst = append(dst, sys[at:at+n]...)
		}
		at += n
	}
	if dst == nil {
		return sys
	}
	return dst
}

// deadRoom is the most that a DEAD record takes beside the message that it moves, with a whole history:
// what is stored must leave so much room that it can be moved. The message's id stands there twice.
func deadRoom(id []byte) int { return 1024 + moveBytes + historyMax*2*binary.MaxVarintLen64 + len(id) }
