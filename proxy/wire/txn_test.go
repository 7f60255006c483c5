package wire

import (
	"crypto/md5"
	"testing"

	"google.golang.org/protobuf/proto"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// TestAppendCheck: a check is what a delivery is, without a handle, and names its transaction.
func TestAppendCheck(t *testing.T) {
	sys, err := proto.Marshal(&rmqv2.SystemProperties{Tag: new("tag"), Keys: []string{"k"}, MessageId: "id", MessageType: rmqv2.MessageType_TRANSACTION})
	if err != nil {
		t.Fatal(err)
	}
	user, err := proto.Marshal(&rmqv2.Message{UserProperties: map[string]string{"colour": "blue"}})
	if err != nil {
		t.Fatal(err)
	}
	m := &brokerapi.Delivery{Attempt: 1, StoreTime: 1_700_000_000_123, Digest: md5.Sum([]byte("body")), User: user, Sys: sys, Body: []byte("body")}
	d := &Delivery{Topic: AppendName(nil, "orders"), StoreHost: "192.0.2.1:10911"}
	id := MessageID(sys)
	if string(id) != "id" {
		t.Fatalf("the message id is %q", id)
	}
	var cmd rmqv2.TelemetryCommand
	if err := proto.Unmarshal(AppendCheck(nil, m, d, id), &cmd); err != nil {
		t.Fatal(err)
	}
	var delivered rmqv2.ReceiveMessageResponse
	if err := proto.Unmarshal(AppendDelivery(nil, m, d), &delivered); err != nil {
		t.Fatal(err)
	}
	check := cmd.GetRecoverOrphanedTransactionCommand()
	if !proto.Equal(check.GetMessage(), delivered.GetMessage()) || check.GetTransactionId() != "id" || cmd.GetStatus() != nil {
		t.Errorf("the check is %v, a delivery %v", &cmd, &delivered)
	}
	if got := check.GetMessage(); got.GetTopic().GetName() != "orders" || got.GetSystemProperties().GetReceiptHandle() != "" ||
		got.GetSystemProperties().GetBodyDigest().GetChecksum() == "" || got.GetUserProperties()["colour"] != "blue" {
		t.Errorf("the message is %v", got)
	}
	if MessageID(nil) != nil {
		t.Error("no properties, but a message id")
	}
}
