package offset

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// TestModel compares the table with a map under random records, deletions and reloads.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, model := New(), map[Key]record.QueueOffset{}
		key := func() Key {
			return Key{record.GroupID(rapid.IntRange(1, 3).Draw(t, "group")), record.TopicID(rapid.IntRange(1, 3).Draw(t, "topic")), record.QueueID(rapid.IntRange(0, 3).Draw(t, "queue"))}
		}
		t.Repeat(map[string]func(*rapid.T){
			"pull": func(t *rapid.T) {
				k, off := key(), record.QueueOffset(rapid.Int64Range(0, 1<<62).Draw(t, "offset"))
				require.NoError(t, table.Apply(&record.OffsetItem{Kind: record.OffsetPull, Group: k.Group, Topic: k.Topic, Queue: k.Queue, Offset: off}))
				model[k] = off
			},
			"reset": func(t *rapid.T) {
				k, off := key(), record.QueueOffset(rapid.Int64Range(0, 1<<62).Draw(t, "offset"))
				require.NoError(t, table.Apply(&record.OffsetItem{Kind: record.OffsetReset, Group: k.Group, Topic: k.Topic, Queue: k.Queue, Offset: off}))
				if _, ok := model[k]; ok {
					model[k] = off
				}
			},
			"drop topic": func(*rapid.T) {
				k := key()
				table.DropTopic(k.Topic)
				maps.DeleteFunc(model, func(m Key, _ record.QueueOffset) bool { return m.Topic == k.Topic })
			},
			"drop group": func(*rapid.T) {
				k := key()
				table.DropGroup(k.Group)
				maps.DeleteFunc(model, func(m Key, _ record.QueueOffset) bool { return m.Group == k.Group })
			},
			"reload": func(t *rapid.T) {
				b := table.Encode(nil)
				again := New()
				require.NoError(t, again.Decode(b))
				require.Equal(t, b, again.Encode(nil))
				table = again
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(model), table.Len())
				for k, off := range model {
					got, ok := table.Get(k)
					require.True(t, ok)
					require.Equal(t, off, got)
				}
			},
		})
	})
}

// TestApplyRefuses what no release of today has written.
func TestApplyRefuses(t *testing.T) {
	table := New()
	require.True(t, mqerr.Is(table.Apply(&record.OffsetItem{Kind: 9, Group: 1, Topic: 1}), mqerr.Unsupported))
	require.True(t, mqerr.Is(table.Apply(&record.OffsetItem{Kind: record.OffsetPull, Group: 1, Topic: 1, Offset: -1}), mqerr.Corrupt))
	require.Zero(t, table.Len())
}

// TestDecodeRefuses what Encode cannot have written.
func TestDecodeRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":      {},
		"version":      {2, 0},
		"cut":          {1, 1, 1, 1, 1},
		"too many":     {1, 200, 1, 1, 1, 1, 1},
		"out of order": {1, 2, 2, 1, 1, 1, 1, 1, 1, 1},
		"twice":        {1, 2, 1, 1, 1, 1, 1, 1, 1, 1},
		"long number":  {1, 1, 1, 1, 1, 0x81, 0},
		"more behind":  {1, 0, 0},
	} {
		require.Error(t, New().Decode(b), name)
	}
}

// FuzzDecode never panics, and what it takes it gives back.
func FuzzDecode(f *testing.F) {
	table := New()
	f.Add(table.Encode(nil))
	for i := range 5 {
		_ = table.Apply(&record.OffsetItem{Kind: record.OffsetPull, Group: 1, Topic: record.TopicID(i), Queue: 2, Offset: record.QueueOffset(i * 1000)})
	}
	f.Add(table.Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		table := New()
		if table.Decode(b) == nil {
			require.Equal(t, b, table.Encode(nil))
		}
	})
}
