package engine

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perigee-mq/perigee/store/record"
)

// pairs reads the fields num of an encoded message, each a pair of texts.
func pairs(t *testing.T, b []byte, num protowire.Number) map[string]string {
	t.Helper()
	out := map[string]string{}
	for len(b) > 0 {
		got, typ, n := protowire.ConsumeTag(b)
		require.GreaterOrEqual(t, n, 0)
		m := protowire.ConsumeFieldValue(got, typ, b[n:])
		require.GreaterOrEqual(t, m, 0)
		if got == num {
			inner, _ := protowire.ConsumeBytes(b[n:])
			var text [3]string
			for len(inner) > 0 {
				field, _, k := protowire.ConsumeTag(inner)
				v, l := protowire.ConsumeBytes(inner[k:])
				require.GreaterOrEqual(t, l, 0)
				text[field] = string(v)
				inner = inner[k+l:]
			}
			out[text[1]] = text[2]
		}
		b = b[n+m:]
	}
	return out
}

// TestOriginOfDeadLetters: it is written once, whatever was there, and everything else stays.
func TestOriginOfDeadLetters(t *testing.T) {
	sys := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "tag")
	sys = protowire.AppendVarint(protowire.AppendTag(sys, 22, protowire.VarintType), 7)
	one := withOrigin(sys, "orders", []byte("id-1"))
	require.Equal(t, map[string]string{"orders": "id-1"}, pairs(t, one, 20))
	require.Equal(t, sys, withoutOrigin(one))
	two := withOrigin(append(one, sys...), "%DLQ%g", []byte("id-2"))
	require.Equal(t, map[string]string{"%DLQ%g": "id-2"}, pairs(t, two, 20))
	require.Equal(t, append(append([]byte{}, sys...), sys...), withoutOrigin(two))
	require.Equal(t, []byte{0xff}, withoutOrigin([]byte{0xff}), "what is malformed stays")
	require.Empty(t, withoutOrigin(nil))
}

// TestReasonOfDeadLetters: the times are told as far as they are known.
func TestReasonOfDeadLetters(t *testing.T) {
	user := appendProperty(nil, "colour", "blue")
	d := record.Dead{Reason: record.DeadByClient, Attempts: 3, Msg: record.Msg{User: user}, History: []record.DeadAttempt{{Lease: 8, Time: 5}, {Lease: 16, Time: 9}}}
	require.Equal(t, map[string]string{
		"colour": "blue", propertyReason: "forwarded by consumer", propertyAttempts: "3", propertyLast: "9",
	}, pairs(t, withReason(&d), 2), "the first one is not among them")
	d.Attempts = 2
	require.Equal(t, "5", pairs(t, withReason(&d), 2)[propertyFirst])
	d.Reason = record.DeadByOperator
	require.Equal(t, user, withReason(&d))
}
