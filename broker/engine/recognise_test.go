package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// TestSentBefore: a message that may have been stored before is stored once, or not at all where that can't be told.
func TestSentBefore(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	first := message("x")
	again := func(age time.Duration, m brokerapi.Message) (*brokerapi.SendReply, error) {
		req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync), Age: age, Messages: []brokerapi.Message{m}}
		return wait(t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
	}
	r, err := again(0, first)
	require.NoError(t, err)
	require.False(t, r.Results[0].Duplicate)
	r, err = again(time.Second, first)
	require.NoError(t, err)
	require.True(t, r.Results[0].Duplicate)
	r, err = again(time.Second, message("another"))
	require.NoError(t, err)
	require.False(t, r.Results[0].Duplicate, "it was not stored then")

	const window = 10 * time.Minute // the default
	_, err = again(window-clockSlack, message("just in time"))
	require.NoError(t, err)
	end := b.store.Log().Written()
	_, err = again(window-clockSlack+time.Millisecond, message("too late"))
	require.True(t, mqerr.Is(err, mqerr.Timeout), "%v", err)
	require.Equal(t, end, b.store.Log().Written())

	// What the window has lost it cannot recognise.
	b.store.Duplicates().LostBefore(record.Pos(end), b.clock.Wall())
	_, err = again(time.Millisecond, message("lost"))
	require.True(t, mqerr.Is(err, mqerr.Timeout), "%v", err)
	b.clock.advance(time.Minute)
	_, err = again(time.Minute-clockSlack, message("found again"))
	require.NoError(t, err)
}
