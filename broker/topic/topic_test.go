package topic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

func TestTableFollowsMetaRecords(t *testing.T) {
	table := New()
	for _, d := range []Definition{{ID: 7, Name: "b", Queues: 2, Version: 3}, {ID: 2, Name: "a", Queues: 1, Flush: FlushAsync, Version: 4}} {
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
