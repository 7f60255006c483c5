package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// Every limit of the protocol is a flag and a key of a file, and what is written is what is read.
func TestTopicLimits(t *testing.T) {
	require.Len(t, topicLimits, (&controllerv1.TopicLimits{}).ProtoReflect().Descriptor().Fields().Len())
	keys := reflect.TypeFor[declaredLimits]()
	require.Equal(t, len(topicLimits), keys.NumField())
	for i := range topicLimits {
		l := &topicLimits[i]
		require.Equal(t, l.key, keys.Field(i).Tag.Get("yaml"))
		d := declaredLimits{}
		text := "1h"
		if l.count {
			text = "7"
		}
		reflect.ValueOf(&d).Elem().Field(i).Set(reflect.ValueOf(&text))
		req, err := d.request()
		require.NoError(t, err, l.key)
		for j := range topicLimits {
			switch v := *topicLimits[j].field(req); {
			case j != i:
				require.Nil(t, v, "%s sets %s", l.key, topicLimits[j].key)
			case l.count:
				require.EqualValues(t, 7, *v)
			default:
				require.EqualValues(t, time.Hour.Milliseconds(), *v)
			}
		}
		for _, v := range []int64{l.min, l.max, 0} {
			got, err := l.parse(l.text(v))
			require.NoError(t, err, l.text(v))
			require.Equal(t, v, got)
		}
		for _, v := range []int64{l.min - 1, l.max + 1, -2} {
			if v > 0 || !l.off && v < 0 {
				_, err := l.parse(l.text(v))
				require.Error(t, err, l.text(v))
			}
		}
		for _, text := range []string{"", "soon", "1us", "1h ", "9999999999999h"} {
			_, err := l.parse(text)
			require.Error(t, err, text)
		}
	}
}
