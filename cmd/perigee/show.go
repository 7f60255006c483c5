package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// received is a message as JSON.
type received struct {
	ID           string            `json:"message_id"`
	Topic        string            `json:"topic"`
	Queue        int32             `json:"queue"`
	Offset       int64             `json:"offset"`
	Attempt      int32             `json:"attempt"`
	Tag          string            `json:"tag,omitempty"`
	Keys         []string          `json:"keys,omitempty"`
	MessageGroup string            `json:"message_group,omitempty"`
	Properties   map[string]string `json:"properties,omitempty"`
	Handle       string            `json:"receipt_handle"`
	Body         *string           `json:"body,omitempty"`        // of a body that is text
	Bytes        []byte            `json:"body_base64,omitempty"` // of any other
}

// show prints one message: a line of what it is, then its body; or all of it as a line of JSON.
func (s *receiveSettings) show(w io.Writer, m *rmqv2.Message) error {
	if s.Output == "json" {
		return json.NewEncoder(w).Encode(receivedOf(m))
	}
	sys, line := m.GetSystemProperties(), new(strings.Builder)
	fmt.Fprintf(line, "%s queue %d offset %d attempt %d", sys.GetMessageId(), sys.GetQueueId(), sys.GetQueueOffset(), sys.GetDeliveryAttempt())
	if sys.GetTag() != "" {
		fmt.Fprintf(line, " tag %s", sys.GetTag())
	}
	if len(sys.GetKeys()) > 0 {
		fmt.Fprintf(line, " keys %s", strings.Join(sys.GetKeys(), ","))
	}
	if sys.GetMessageGroup() != "" {
		fmt.Fprintf(line, " group %s", sys.GetMessageGroup())
	}
	for _, name := range slices.Sorted(maps.Keys(m.GetUserProperties())) {
		fmt.Fprintf(line, " %s=%q", name, m.GetUserProperties()[name])
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n", line, m.GetBody())
	return err
}

func receivedOf(m *rmqv2.Message) received {
	sys := m.GetSystemProperties()
	r := received{
		ID: sys.GetMessageId(), Topic: m.GetTopic().GetName(), Queue: sys.GetQueueId(), Offset: sys.GetQueueOffset(), Attempt: sys.GetDeliveryAttempt(),
		Tag: sys.GetTag(), Keys: sys.GetKeys(), MessageGroup: sys.GetMessageGroup(), Properties: m.GetUserProperties(), Handle: sys.GetReceiptHandle(),
	}
	if utf8.Valid(m.GetBody()) {
		text := string(m.GetBody())
		r.Body = &text
	} else {
		r.Bytes = m.GetBody()
	}
	return r
}
