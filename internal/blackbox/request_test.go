package blackbox

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// methodsServed are the methods of this release.
var methodsServed = []string{
	"QueryRoute", "Heartbeat", "SendMessage", "QueryAssignment", "ReceiveMessage", "AckMessage", "Telemetry", "NotifyClientTermination", "ChangeInvisibleDuration",
}

func resource(name string) *rmqv2.Resource { return &rmqv2.Resource{Name: name} }

func endpoints() *rmqv2.Endpoints {
	return &rmqv2.Endpoints{Scheme: rmqv2.AddressScheme_IPv4, Addresses: []*rmqv2.Address{{Host: "127.0.0.1", Port: 8081}}}
}

// request returns a good request of a method that is served.
func request(method, topic, group string) proto.Message {
	switch method {
	case "QueryRoute":
		return &rmqv2.QueryRouteRequest{Topic: resource(topic), Endpoints: endpoints()}
	case "QueryAssignment":
		return &rmqv2.QueryAssignmentRequest{Topic: resource(topic), Group: resource(group), Endpoints: endpoints()}
	case "SendMessage":
		return &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{{
			Topic: resource(topic), Body: []byte("hello"), SystemProperties: &rmqv2.SystemProperties{MessageId: "an-id", MessageType: rmqv2.MessageType_NORMAL},
		}}}
	case "ReceiveMessage":
		return receiveRequest(topic, group)
	case "AckMessage":
		return ackRequest(topic, group, &rmqv2.Message{SystemProperties: &rmqv2.SystemProperties{MessageId: "an-id", ReceiptHandle: new("handle")}})
	case "ChangeInvisibleDuration":
		return changeRequest(topic, group, "handle", 30*time.Second)
	case "Heartbeat":
		return &rmqv2.HeartbeatRequest{Group: resource(group), ClientType: rmqv2.ClientType_SIMPLE_CONSUMER}
	case "NotifyClientTermination":
		return &rmqv2.NotifyClientTerminationRequest{Group: resource(group)}
	case "Telemetry":
		return settingsCommand(consumerSettings(topic, group))
	}
	return newMessage(methodOf(method).Input().FullName())
}

func receiveRequest(topic, group string) *rmqv2.ReceiveMessageRequest {
	return &rmqv2.ReceiveMessageRequest{
		Group: resource(group), MessageQueue: &rmqv2.MessageQueue{Topic: resource(topic)},
		FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"}, BatchSize: 32,
		InvisibleDuration: durationpb.New(10 * time.Second), LongPollingTimeout: durationpb.New(5 * time.Second),
	}
}

func ackRequest(topic, group string, messages ...*rmqv2.Message) *rmqv2.AckMessageRequest {
	req := &rmqv2.AckMessageRequest{Topic: resource(topic), Group: resource(group)}
	for _, m := range messages {
		sys := m.GetSystemProperties()
		req.Entries = append(req.Entries, &rmqv2.AckMessageEntry{MessageId: sys.GetMessageId(), ReceiptHandle: sys.GetReceiptHandle()})
	}
	return req
}

func changeRequest(topic, group, handle string, d time.Duration) *rmqv2.ChangeInvisibleDurationRequest {
	return &rmqv2.ChangeInvisibleDurationRequest{
		Topic: resource(topic), Group: resource(group), ReceiptHandle: handle, MessageId: "an-id", InvisibleDuration: durationpb.New(d),
	}
}

func consumerSettings(topic, group string) *rmqv2.Settings {
	return &rmqv2.Settings{
		ClientType: rmqv2.ClientType_SIMPLE_CONSUMER.Enum(), AccessPoint: endpoints(), RequestTimeout: durationpb.New(3 * time.Second),
		UserAgent: &rmqv2.UA{Language: rmqv2.Language_GOLANG, Version: "5.1.3"},
		PubSub: &rmqv2.Settings_Subscription{Subscription: &rmqv2.Subscription{
			Group: resource(group), Subscriptions: []*rmqv2.SubscriptionEntry{{
				Topic: resource(topic), Expression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
			}},
		}},
	}
}

func producerSettings(topic string) *rmqv2.Settings {
	return &rmqv2.Settings{
		ClientType: rmqv2.ClientType_PRODUCER.Enum(), AccessPoint: endpoints(), RequestTimeout: durationpb.New(3 * time.Second),
		PubSub: &rmqv2.Settings_Publishing{Publishing: &rmqv2.Publishing{Topics: []*rmqv2.Resource{resource(topic)}}},
	}
}

func settingsCommand(s *rmqv2.Settings) *rmqv2.TelemetryCommand {
	return &rmqv2.TelemetryCommand{Command: &rmqv2.TelemetryCommand_Settings{Settings: s}}
}

// without takes a field out of a message.
func without(m proto.Message, field string) proto.Message {
	r := m.ProtoReflect()
	r.Clear(r.Descriptor().Fields().ByName(protoreflect.Name(field)))
	return m
}
