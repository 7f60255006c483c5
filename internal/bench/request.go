package bench

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// Message is a message as a real client sends it: size bytes of body, a tag, a key, two properties.
func Message(topic, id string, size int) *rmqv2.Message {
	tag := "new"
	body := bytes.Repeat([]byte("perigee benchmark body "), size/23+1)[:size]
	return &rmqv2.Message{
		Topic:          &rmqv2.Resource{Name: topic},
		UserProperties: map[string]string{"colour": "blue", "region": "eu-central-1"},
		SystemProperties: &rmqv2.SystemProperties{
			Tag: &tag, Keys: []string{"order-4711"}, MessageId: id, BodyEncoding: rmqv2.Encoding_IDENTITY, MessageType: rmqv2.MessageType_NORMAL,
			BornTimestamp: timestamppb.New(time.UnixMilli(1767225600000)), BornHost: "client.example",
		},
		Body: body,
	}
}

// SendRequest encodes a request of n messages and tells where the changing digits of each message id
// stand.
func SendRequest(topic string, size, n int) (req []byte, ids []int, err error) {
	m := &rmqv2.SendMessageRequest{}
	for i := range n {
		m.Messages = append(m.Messages, Message(topic, mark(i), size))
	}
	if req, err = proto.Marshal(m); err != nil {
		return nil, nil, err
	}
	for i := range n {
		at := bytes.Index(req, []byte(mark(i)))
		if at < 0 {
			return nil, nil, fmt.Errorf("bench: message id %d is not in the request", i)
		}
		ids = append(ids, at+len(mark(i))-idDigits)
	}
	return req, ids, nil
}

// mark is a message id that can be found again in an encoded request: 34 digits.
func mark(i int) string {
	return "01BE5C4A77" + strings.Repeat("0", idDigits-8) + fmt.Sprintf("%08X", i)
}

// entryOf takes from an encoded ReceiveMessageResponse what an ack needs, nil if it holds no message.
// It reads four fields and skips the rest, since decoding whole messages would cost more than the
// call.
func entryOf(b []byte) (*rmqv2.AckMessageEntry, error) {
	message := field(b, 2)
	if message == nil {
		status := field(b, 1)
		if status != nil {
			var st rmqv2.Status
			if err := proto.Unmarshal(status, &st); err != nil {
				return nil, err
			}
			if c := st.GetCode(); c != rmqv2.Code_OK && c != rmqv2.Code_MESSAGE_NOT_FOUND {
				return nil, fmt.Errorf("receive: %v", &st)
			}
		}
		return nil, nil
	}
	sys := field(message, 3)
	return &rmqv2.AckMessageEntry{MessageId: string(field(sys, 3)), ReceiptHandle: string(field(sys, 12))}, nil
}

// field returns the last length-delimited field of that number, nil if there is none.
func field(b []byte, number protowire.Number) []byte {
	var out []byte
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if typ == protowire.BytesType {
			v, m := protowire.ConsumeBytes(b)
			if m < 0 {
				return nil
			}
			if num == number {
				out = v
			}
			b = b[m:]
			continue
		}
		m := protowire.ConsumeFieldValue(num, typ, b)
		if m < 0 {
			return nil
		}
		b = b[m:]
	}
	return out
}
