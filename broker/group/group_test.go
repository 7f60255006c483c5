package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

func TestTableFollowsMetaRecords(t *testing.T) {
	table := New()
	d := Definition{ID: 3, Name: "g", MaxAttempts: 17, From: FromLast, Version: 3}
	put := func(pos record.Pos) {
		m, err := d.Meta()
		require.NoError(t, err)
		require.NoError(t, table.Apply(pos, &m))
	}
	put(4096)
	d.MaxAttempts = 5
	put(8192)
	require.Equal(t, 5, table.Get(3).MaxAttempts)
	require.EqualValues(t, 4096, table.Get(3).Logged, "where the group began stays")
	state, err := table.Encode(nil)
	require.NoError(t, err)
	again := New()
	require.NoError(t, again.Decode(state))
	require.Equal(t, table.All(), again.All())
	require.NoError(t, table.Apply(9000, &record.Meta{Kind: record.MetaGroup, ID: 3, Deleted: true}))
	require.Zero(t, table.Len())
}

func TestDamagedDefinitionsAreRefused(t *testing.T) {
	table := New()
	for _, value := range []string{"", "{", `{"id":8,"max_attempts":1}`, `{"id":7}`} {
		err := table.Apply(0, &record.Meta{Kind: record.MetaGroup, ID: 7, Value: []byte(value)})
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%q: %v", value, err)
	}
	for _, state := range []string{"", "[null]", `[{"id":1}]`} {
		require.True(t, mqerr.Is(table.Decode([]byte(state)), mqerr.Corrupt), state)
	}
}

func TestLastBackoff(t *testing.T) {
	require.Equal(t, 2*time.Hour, (&Definition{}).LastBackoff())
	require.Equal(t, time.Minute, (&Definition{BackoffMS: []int64{1000, 60000}}).LastBackoff())
}
