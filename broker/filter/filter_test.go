package filter

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

func stored(t *testing.T, user map[string]string, sys *rmqv2.SystemProperties) *record.Msg {
	t.Helper()
	u, err := proto.Marshal(&rmqv2.Message{UserProperties: user})
	require.NoError(t, err)
	s, err := proto.Marshal(sys)
	require.NoError(t, err)
	return &record.Msg{Type: record.MsgType(sys.GetMessageType()), ID: []byte(sys.GetMessageId()), User: u, Sys: s}
}

func TestProperties(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	m := stored(t, map[string]string{"n": "2", "empty": "", "TRACE_CONTEXT": "user's", "CHECK_IMMUNITY_TIME_IN_SECONDS": "user's"}, &rmqv2.SystemProperties{
		Tag: new("blue"), Keys: []string{"k1", "k2"}, MessageId: "id", MessageType: rmqv2.MessageType_TRANSACTION, BornTimestamp: timestamppb.New(at), BornHost: "here",
		DeliveryTimestamp: timestamppb.New(at.Add(time.Second)), MessageGroup: new("g"), TraceContext: new("trace"),
		OrphanedTransactionRecoveryDuration: durationpb.New(90 * time.Second), LiteTopic: new("lite"), Priority: new(int32(0)),
	})
	for name, want := range map[string]string{
		"n": "2", "empty": "", "TAGS": "blue", "KEYS": "k1 k2", "UNIQ_KEY": "id", "TRAN_MSG": "true", "BORN_TIMESTAMP": "1700000000123", "__BORNHOST": "here",
		"TIMER_DELIVER_MS": "1700000001123", "__SHARDINGKEY": "g", "TRACE_CONTEXT": "trace", "CHECK_IMMUNITY_TIME_IN_SECONDS": "90", "__LITE_TOPIC": "lite", "_SYS_MSG_PRIORITY_": "0",
	} {
		value, ok := property(m, name)
		require.True(t, ok, name)
		require.Equal(t, want, string(value), name)
	}
	m = stored(t, map[string]string{"TRACE_CONTEXT": "user's"}, &rmqv2.SystemProperties{MessageType: rmqv2.MessageType_NORMAL})
	for name := range systemNames {
		value, ok := property(m, name)
		switch name {
		case "TRACE_CONTEXT":
			require.Equal(t, "user's", string(value))
		case "UNIQ_KEY":
		default:
			require.False(t, ok, name)
		}
	}
	two := append(stored(t, map[string]string{"a": "1"}, &rmqv2.SystemProperties{}).User, stored(t, map[string]string{"a": "2"}, &rmqv2.SystemProperties{}).User...)
	value, ok := property(&record.Msg{User: two}, "a")
	require.True(t, ok)
	require.Equal(t, "2", string(value), "the last one counts, as for everybody who decodes it")
}

func TestMatch(t *testing.T) {
	m := stored(t, map[string]string{"n": "2", "color": "red"}, &rmqv2.SystemProperties{Tag: new("blue")})
	f, err := Compile("n > 1 AND color <> 'blue' AND TAGS IN ('blue') AND absent IS NULL")
	require.NoError(t, err)
	require.True(t, f.Match(m))
	require.Zero(t, testing.AllocsPerRun(100, func() { f.Match(m) }))
	_, err = Compile("n >")
	require.True(t, mqerr.Is(err, mqerr.Invalid))
	require.ErrorContains(t, err, "column 4")
}

func TestCache(t *testing.T) {
	c := NewCache(3)
	first, err := c.Get("n = 0")
	require.NoError(t, err)
	for i := range 10 {
		_, err := c.Get(fmt.Sprintf("n = %d", i))
		require.NoError(t, err)
		again, err := c.Get("n = 0")
		require.NoError(t, err)
		require.Same(t, first, again, "used lately")
		require.LessOrEqual(t, c.Len(), 3)
	}
	_, err = c.Get("n =")
	require.Error(t, err)
	require.Equal(t, 3, c.Len())
}

// Whatever the bytes are, looking for a property ends.
func FuzzProperty(f *testing.F) {
	f.Add([]byte{0x12, 6, 0x0a, 1, 'a', 0x12, 1, 'b'}, []byte{0x0a, 1, 't', 0x3a, 2, 8, 5}, "a")
	f.Fuzz(func(_ *testing.T, user, sys []byte, name string) {
		m := &record.Msg{User: user, Sys: sys}
		property(m, name)
		for n := range systemNames {
			property(m, n)
		}
	})
}
