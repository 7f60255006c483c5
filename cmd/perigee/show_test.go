package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

// TestShowKeepsEveryByte: JSON has no strings of any bytes, so a body that is no text goes as base64.
func TestShowKeepsEveryByte(t *testing.T) {
	for _, body := range []string{"text", "\xff\x00\xfe", "ж\n", "\xc3"} {
		s := &receiveSettings{outputSettings: outputSettings{"json"}}
		var b strings.Builder
		require.NoError(t, s.show(&b, &rmqv2.Message{Body: []byte(body)}))
		require.Equal(t, 1, strings.Count(b.String(), "\n"), "a line each")
		var got received
		require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
		if got.Body != nil {
			require.Equal(t, body, *got.Body)
			require.Empty(t, got.Bytes)
			continue
		}
		require.Equal(t, body, string(got.Bytes))
	}
}
