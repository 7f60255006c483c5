package server

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
)

// Each limit of the protocol reaches its own field, and comes back as it was.
func TestLimitsAgree(t *testing.T) {
	fields := (&controllerv1.TopicLimits{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		p := &controllerv1.TopicLimits{}
		p.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfInt64(int64(1000*(i+1))))
		c := limitsOf(p)
		l := state.Limits{}
		for _, f := range []struct{ to, from *int64 }{
			{&l.MaxDelayMS, c.MaxDelayMS},
			{&l.CheckAfterMS, c.CheckAfterMS},
			{&l.CheckIntervalMS, c.CheckIntervalMS},
			{&l.CheckLimit, c.CheckLimit},
			{&l.DuplicatesMS, c.DuplicatesMS},
			{&l.LiteExpiryMS, c.LiteExpiryMS},
		} {
			if f.from != nil {
				*f.to = *f.from
			}
		}
		require.True(t, proto.Equal(p, limitsProto(l)), "%s: %v", fields.Get(i).Name(), limitsProto(l))
	}
	require.Equal(t, state.LimitsChange{}, limitsOf(nil))
	require.Nil(t, limitsProto(state.Limits{}))
	require.NotNil(t, limitsOf(&controllerv1.TopicLimits{MaxDelayMs: new(int64(0))}).MaxDelayMS, "0 is stated")
}
