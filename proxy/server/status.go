package server

import (
	"time"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/wire"
)

// refusal is a public code with its text. The zero value refuses nothing.
type refusal struct {
	code  rmqv2.Code
	text  string
	pause time.Duration // after which the caller may come again; 0: nothing is known about it
}

func refuse(code rmqv2.Code, text string) refusal { return refusal{code: code, text: text} }

// given reports whether something was refused.
func (r refusal) given() bool { return r.code != 0 }

// okText is the text of a success: the name of the code.
const okText = "OK"

// hint passes the pause on that the caller is asked for.
func (r refusal) hint(c call.Info) {
	if r.pause > 0 {
		c.RetryAfter(r.pause)
	}
}

// reject answers with a Status and nothing else.
func reject(c call.Unary, r refusal) {
	r.hint(c)
	c.Reply(statusReply(r))
}

// statusReply is a response with a Status and nothing else.
func statusReply(r refusal) []byte {
	return wire.AppendStatus(make([]byte, 0, 24+len(r.text)), int32(r.code), r.text)
}

// okReply starts a response whose Status is OK, with room for more bytes.
func okReply(room int) []byte {
	return wire.AppendStatus(make([]byte, 0, 16+room), int32(rmqv2.Code_OK), okText)
}

// appendRefusal begins a response with its Status.
func appendRefusal(dst []byte, r refusal) []byte {
	return wire.AppendStatus(dst, int32(r.code), r.text)
}

// Names of request headers.
const (
	headerClientID = "x-mq-client-id"
	headerLanguage = "x-mq-language"
	headerVersion  = "x-mq-client-version"
)

// clientID is the first step of every call: it needs to say which client it comes from. Nothing else
// in the headers is required.
func clientID(c call.Info) (string, refusal) {
	id := c.Header(headerClientID)
	if isBlank([]byte(id)) {
		return "", refuse(rmqv2.Code_CLIENT_ID_REQUIRED, "the header "+headerClientID+" is missing or blank")
	}
	return id, refusal{}
}

// failDecode ends a call whose request cannot be read.
func failDecode(c interface{ Fail(call.Code, string) }, err error) {
	c.Fail(call.InvalidArgument, err.Error())
}
