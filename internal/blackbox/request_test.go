package blackbox

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

func resource(name string) *rmqv2.Resource { return &rmqv2.Resource{Name: name} }

func endpoints() *rmqv2.Endpoints {
	return &rmqv2.Endpoints{Scheme: rmqv2.AddressScheme_IPv4, Addresses: []*rmqv2.Address{{Host: "127.0.0.1", Port: 8081}}}
}

// request returns a request of a method that is good, as far as the topic and group go.
func request(method, topic, group string) proto.Message {
	switch method {
	case "QueryRoute":
		return &rmqv2.QueryRouteRequest{Topic: resource(topic), Endpoints: endpoints()}
	case "QueryAssignment":
		return &rmqv2.QueryAssignmentRequest{Topic: resource(topic), Group: resource(group), Endpoints: endpoints()}
	case "SendMessage":
		return &rmqv2.SendMessageRequest{Messages: []*rmqv2.Message{{
			Topic: resource(topic), Body: []byte("hello"), SystemProperties: &rmqv2.SystemProperties{MessageId: fmt.Sprintf("an-id-%d", places.Add(1)), MessageType: rmqv2.MessageType_NORMAL},
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
	case "EndTransaction":
		return &rmqv2.EndTransactionRequest{
			Topic: resource(topic), MessageId: "an-id", TransactionId: "an-id", Resolution: rmqv2.TransactionResolution_COMMIT, Source: rmqv2.TransactionSource_SOURCE_CLIENT,
		}
	case "ForwardMessageToDeadLetterQueue":
		return &rmqv2.ForwardMessageToDeadLetterQueueRequest{
			Topic: resource(topic), Group: resource(group), ReceiptHandle: "handle", MessageId: "an-id", DeliveryAttempt: 3, MaxDeliveryAttempts: 3,
		}
	case "PullMessage":
		return &rmqv2.PullMessageRequest{
			Group: resource(group), MessageQueue: &rmqv2.MessageQueue{Topic: resource(topic)}, BatchSize: 32,
			FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
		}
	case "UpdateOffset":
		return &rmqv2.UpdateOffsetRequest{Group: resource(group), MessageQueue: &rmqv2.MessageQueue{Topic: resource(topic)}}
	case "GetOffset":
		return &rmqv2.GetOffsetRequest{Group: resource(group), MessageQueue: &rmqv2.MessageQueue{Topic: resource(topic)}}
	case "QueryOffset":
		return &rmqv2.QueryOffsetRequest{MessageQueue: &rmqv2.MessageQueue{Topic: resource(topic)}, QueryOffsetPolicy: rmqv2.QueryOffsetPolicy_END}
	case "RecallMessage":
		return &rmqv2.RecallMessageRequest{Topic: resource(topic), RecallHandle: "handle"}
	case "SyncLiteSubscription":
		return &rmqv2.SyncLiteSubscriptionRequest{
			Action: rmqv2.LiteSubscriptionAction_COMPLETE_ADD, Topic: resource(topic), Group: resource(group), LiteTopicSet: []string{"lite"},
		}
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
