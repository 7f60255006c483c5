package server

import (
	"testing"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
)

// Every type of the protocol has one here, with the same number and name, and comes back.
func TestNumbersAgree(t *testing.T) {
	for n, name := range controllerv1.TopicType_name {
		p := controllerv1.TopicType(n)
		s, ok := topicTypeOf(p)
		if !ok || int32(s) != n || "TOPIC_TYPE_"+s.String() != name {
			t.Errorf("%s is %v (%v)", name, s, ok)
		}
		if n != 0 && typeToProto[s] != p {
			t.Errorf("%v goes out as %v", s, typeToProto[s])
		}
	}
	for n := range controllerv1.PutMode_name {
		if _, ok := modeOf(controllerv1.PutMode(n)); !ok {
			t.Errorf("mode %d is unknown", n)
		}
	}
	for n := range controllerv1.FlushPolicy_name {
		c := state.PutTopic{Name: "t", Flush: state.Flush(n)}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
	for n := range controllerv1.StartFrom_name {
		c := state.PutGroup{Name: "g", From: state.From(n)}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}
