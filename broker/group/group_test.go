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
		require.NoError(t, table.Apply(pos, 0, &m))
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
	require.NoError(t, table.Apply(9000, 0, &record.Meta{Kind: record.MetaGroup, ID: 3, Deleted: true}))
	require.Zero(t, table.Len())
}

func TestDamagedDefinitionsAreRefused(t *testing.T) {
	table := New()
	for _, value := range []string{"", "{", `{"id":8,"max_attempts":1}`, `{"id":7}`} {
		err := table.Apply(0, 0, &record.Meta{Kind: record.MetaGroup, ID: 7, Value: []byte(value)})
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

// FuzzDecode: any bytes are refused or make a table that encodes and decodes to itself.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("[]"))
	f.Add([]byte(`[{"id":7,"name":"x","queues":2,"max_attempts":3,"version":5}]`))
	f.Add([]byte(`[null]`))
	f.Add([]byte(`[{"id":7,"queues":2,"max_attempts":3},{"id":7,"queues":1,"max_attempts":1}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		table := New()
		if err := table.Decode(b); err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) {
				t.Errorf("refused with %v", err)
			}
			return
		}
		state, err := table.Encode(nil)
		require.NoError(t, err)
		again := New()
		require.NoError(t, again.Decode(state))
		require.Equal(t, table.All(), again.All())
	})
}
