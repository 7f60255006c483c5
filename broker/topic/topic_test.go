package topic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

func TestTableFollowsMetaRecords(t *testing.T) {
	table := New()
	for _, d := range []Definition{{ID: 7, Name: "b", Queues: 2, Version: 3}, {ID: 2, Name: "a", Queues: 1, Flush: FlushAsync, Version: 4, Limits: Limits{CheckLimit: 2, DuplicatesMS: -1}}} {
		m, err := d.Meta()
		require.NoError(t, err)
		require.NoError(t, table.Apply(&m))
	}
	require.Equal(t, []string{"a", "b"}, []string{table.All()[0].Name, table.All()[1].Name}, "by id")
	state, err := table.Encode(nil)
	require.NoError(t, err)
	again := New()
	require.NoError(t, again.Decode(state))
	require.Equal(t, table.All(), again.All())
	require.NoError(t, table.Apply(&record.Meta{Kind: record.MetaTopic, ID: 7, Deleted: true}))
	require.Nil(t, table.Get(7))
	require.Equal(t, 1, table.Len())
}

func TestDamagedDefinitionsAreRefused(t *testing.T) {
	table := New()
	for _, value := range []string{"", "{", `{"id":8,"queues":1}`, `{"id":7,"queues":0}`} {
		err := table.Apply(&record.Meta{Kind: record.MetaTopic, ID: 7, Value: []byte(value)})
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%q: %v", value, err)
	}
	for _, state := range []string{"", "[null]", `[{"id":1}]`, "{}"} {
		require.True(t, mqerr.Is(table.Decode([]byte(state)), mqerr.Corrupt), state)
	}
}

// FuzzDecode: any bytes are refused or make a table that encodes and decodes to itself.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("[]"))
	f.Add([]byte(`[{"id":7,"name":"x","queues":2,"max_attempts":3,"version":5}]`))
	f.Add([]byte(`[{"id":7,"name":"x","queues":2,"limits":{"check_limit":3,"duplicate_window_ms":-1},"version":5}]`))
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
