package clients

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func drained(table *Table) bool {
	select {
	case <-table.ProducersChanged():
		return true
	default:
		return false
	}
}

func TestProducersOfATopic(t *testing.T) {
	table := New(Options{}, start)
	require.Empty(t, table.ProducedTopics())
	a, b := &stream{1}, &stream{2}
	table.Put("a", Settings{Type: Producer, Topics: []string{"x", "y"}}, a, start)
	require.True(t, drained(table))
	table.Produced("b", "x", start) // before it has a stream
	require.False(t, drained(table))
	require.Equal(t, []string{"x", "y"}, table.ProducedTopics())
	require.Equal(t, []Stream{a}, table.ProducerStreams("x", 3))
	table.Put("b", Settings{Type: Producer}, b, start)
	require.False(t, drained(table), "nothing new")
	require.ElementsMatch(t, []Stream{a, b}, table.ProducerStreams("x", 3))
	first, second := table.ProducerStreams("x", 1)[0], table.ProducerStreams("x", 1)[0]
	require.NotEqual(t, first, second, "they take turns")
	require.Equal(t, first, table.ProducerStreams("x", 1)[0])

	table.Leave("a", a)
	require.True(t, drained(table))
	require.Equal(t, []string{"x"}, table.ProducedTopics())
	require.Equal(t, []Stream{b}, table.ProducerStreams("x", 3))
	require.Nil(t, table.ProducerStreams("y", 3))
	table.Put("a", Settings{Type: Producer}, a, start) // the stream is new, what it declared before stays
	require.Equal(t, []string{"x", "y"}, table.ProducedTopics())
	table.Drop("a")
	table.Drop("b")
	require.Empty(t, table.ProducedTopics())
	require.True(t, drained(table))
}

func TestConsumersAreNoProducers(t *testing.T) {
	table := New(Options{}, start)
	table.Put("c", Settings{Type: SimpleConsumer, Topics: []string{"x"}}, &stream{1}, start)
	require.Empty(t, table.ProducedTopics())
}

// TestProducersAreForgotten: whichever way a client goes, its topics go with it.
func TestProducersAreForgotten(t *testing.T) {
	table := New(Options{MaxClients: 4}, start)
	for i := range 4 {
		table.Put(fmt.Sprint(i), Settings{Type: Producer, Topics: []string{fmt.Sprint("topic ", i)}}, &stream{i}, at(float64(i)))
	}
	table.Put("new", Settings{Type: Producer, Topics: []string{"new"}}, &stream{9}, at(9))
	require.Equal(t, []string{"new", "topic 1", "topic 2", "topic 3"}, table.ProducedTopics())
	table.Expire(at(122.5))
	require.Equal(t, []string{"new", "topic 3"}, table.ProducedTopics())
	for i := range 2 * producedMax {
		table.Produced("new", fmt.Sprint("more ", i), at(122))
	}
	require.Len(t, table.ProducedTopics(), producedMax+1)
}
