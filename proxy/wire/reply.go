package wire

import "google.golang.org/protobuf/encoding/protowire"

// The append functions of this file write proto3: a field with its zero value is left out where the
// protocol says nothing of presence.

func appendTag(dst []byte, num int32, typ uint8) []byte {
	return protowire.AppendVarint(dst, uint64(num)<<3|uint64(typ))
}

func appendInt(dst []byte, num int32, v int64) []byte {
	if v == 0 {
		return dst
	}
	return appendPresentInt(dst, num, v)
}

func appendPresentInt(dst []byte, num int32, v int64) []byte {
	return protowire.AppendVarint(appendTag(dst, num, typeVarint), uint64(v))
}

func appendText[T string | []byte](dst []byte, num int32, s T) []byte {
	if len(s) == 0 {
		return dst
	}
	return append(appendHead(dst, num, len(s)), s...)
}

// appendHead appends tag and length of a field whose content follows.
func appendHead(dst []byte, num int32, size int) []byte {
	return protowire.AppendVarint(appendTag(dst, num, typeBytes), uint64(size))
}

func intSize(num int32, v int64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(protowire.Number(num)) + protowire.SizeVarint(uint64(v))
}

func textSize(num int32, n int) int {
	if n == 0 {
		return 0
	}
	return headSize(num, n) + n
}

func headSize(num int32, n int) int {
	return protowire.SizeTag(protowire.Number(num)) + protowire.SizeVarint(uint64(n))
}

// appendTime appends a Timestamp.
func appendTime(dst []byte, num int32, ms int64) []byte {
	sec, nanos := splitMS(ms)
	dst = appendHead(dst, num, intSize(1, sec)+intSize(2, nanos))
	return appendInt(appendInt(dst, 1, sec), 2, nanos)
}

func timeSize(num int32, ms int64) int {
	sec, nanos := splitMS(ms)
	n := intSize(1, sec) + intSize(2, nanos)
	return headSize(num, n) + n
}

func splitMS(ms int64) (sec, nanos int64) {
	sec, nanos = ms/1000, ms%1000*1e6
	if nanos < 0 {
		sec, nanos = sec-1, nanos+1e9
	}
	return sec, nanos
}

func appendStatus(dst []byte, num, code int32, text string) []byte {
	dst = appendHead(dst, num, statusSize(code, text))
	return appendText(appendInt(dst, 1, int64(code)), 2, text)
}

func statusSize(code int32, text string) int {
	return intSize(1, int64(code)) + textSize(2, len(text))
}

// AppendStatus appends the Status with which every response begins.
func AppendStatus(dst []byte, code int32, text string) []byte {
	return appendStatus(dst, 1, code, text)
}

// SendEntry is one result of a send. Failed ones have only their status.
type SendEntry struct {
	Code          int32
	Text          string
	MessageID     []byte
	TransactionID []byte
	Offset        int64
	RecallHandle  []byte
}

// AppendSendEntry appends one entry of a SendMessageResponse.
func AppendSendEntry(dst []byte, e SendEntry) []byte {
	status := statusSize(e.Code, e.Text)
	dst = appendHead(dst, 2, headSize(1, status)+status+textSize(2, len(e.MessageID))+
		textSize(3, len(e.TransactionID))+intSize(4, e.Offset)+textSize(5, len(e.RecallHandle)))
	dst = appendStatus(dst, 1, e.Code, e.Text)
	dst = appendText(dst, 2, e.MessageID)
	dst = appendText(dst, 3, e.TransactionID)
	dst = appendInt(dst, 4, e.Offset)
	return appendText(dst, 5, e.RecallHandle)
}

// AppendAckEntry appends one entry of an AckMessageResponse.
func AppendAckEntry(dst, messageID, handle []byte, code int32, text string) []byte {
	status := statusSize(code, text)
	dst = appendHead(dst, 2, textSize(1, len(messageID))+textSize(2, len(handle))+headSize(3, status)+status)
	dst = appendText(dst, 1, messageID)
	dst = appendText(dst, 2, handle)
	return appendStatus(dst, 3, code, text)
}

// AppendHandle appends the receipt handle of a ChangeInvisibleDurationResponse.
func AppendHandle(dst, handle []byte) []byte { return appendText(dst, 2, handle) }

// AppendDeliveryTimestamp appends the end of a receive: a ReceiveMessageResponse with the server's
// time in ms since 1970.
func AppendDeliveryTimestamp(dst []byte, ms int64) []byte { return appendTime(dst, 3, ms) }

// Queue is a MessageQueue of a route or an assignment. Its broker id is 0, the master's.
type Queue struct {
	Topic      []byte // content of the topic's Resource
	ID         int32
	Permission int32
	Broker     string
	Endpoints  []byte // content of the Endpoints
	Accepts    []byte // message types, one byte each; may be empty
}

func (q *Queue) brokerSize() int {
	return textSize(1, len(q.Broker)) + headSize(3, len(q.Endpoints)) + len(q.Endpoints)
}

func (q *Queue) size() int {
	broker := q.brokerSize()
	return headSize(1, len(q.Topic)) + len(q.Topic) + intSize(2, int64(q.ID)) + intSize(3, int64(q.Permission)) +
		headSize(4, broker) + broker + textSize(5, len(q.Accepts))
}

func (q *Queue) append(dst []byte) []byte {
	dst = append(appendHead(dst, 1, len(q.Topic)), q.Topic...)
	dst = appendInt(dst, 2, int64(q.ID))
	dst = appendInt(dst, 3, int64(q.Permission))
	dst = appendHead(dst, 4, q.brokerSize())
	dst = appendText(dst, 1, q.Broker)
	dst = append(appendHead(dst, 3, len(q.Endpoints)), q.Endpoints...)
	return appendText(dst, 5, q.Accepts)
}

// AppendRouteQueue appends one queue of a QueryRouteResponse.
func AppendRouteQueue(dst []byte, q *Queue) []byte {
	return q.append(appendHead(dst, 2, q.size()))
}

// AppendAssignment appends one assignment of a QueryAssignmentResponse.
func AppendAssignment(dst []byte, q *Queue) []byte {
	n := q.size()
	dst = appendHead(dst, 2, headSize(1, n)+n)
	return q.append(appendHead(dst, 1, n))
}

// AppendEndpoints appends the content of an Endpoints with one address.
func AppendEndpoints(dst []byte, scheme int32, host string, port int32) []byte {
	dst = appendInt(dst, 1, int64(scheme))
	dst = appendHead(dst, 2, textSize(1, len(host))+intSize(2, int64(port)))
	return appendInt(appendText(dst, 1, host), 2, int64(port))
}
