package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestHandleOfALaterEpoch: a master that was replaced, and does not know, says so of handles that the next one gave, not that
// they are not valid.
func TestHandleOfALaterEpoch(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "x")
	m := b.mustPop(topicSync, groupA)[0]
	h := m.handle()
	require.EqualValues(t, b.epoch, h.Epoch)
	head := func(h brokerapi.Handle) (topic brokerapi.TopicID, group brokerapi.GroupID, hs []brokerapi.Handle) {
		return brokerapi.TopicID(topicSync), brokerapi.GroupID(groupA), []brokerapi.Handle{h}
	}
	calls := map[string]func(h brokerapi.Handle) error{
		"ack": func(h brokerapi.Handle) error {
			topic, group, hs := head(h)
			_, err := wait(t, func(done func(*brokerapi.AckReply, error)) {
				b.proxy.Ack(&brokerapi.AckRequest{Topic: topic, Group: group, Handles: hs}, done)
			})
			return err
		},
		"change": func(h brokerapi.Handle) error {
			topic, group, hs := head(h)
			_, err := wait(t, func(done func(*brokerapi.ChangeReply, error)) {
				b.proxy.Change(&brokerapi.ChangeRequest{Topic: topic, Group: group, Handles: hs, Invisible: time.Minute}, done)
			})
			return err
		},
		"forward": func(h brokerapi.Handle) error {
			topic, group, hs := head(h)
			_, err := wait(t, func(done func(*brokerapi.ForwardReply, error)) {
				b.proxy.Forward(&brokerapi.ForwardRequest{Topic: topic, Group: group, Handles: hs}, done)
			})
			return err
		},
	}
	for name, call := range calls {
		later := h
		later.Epoch++
		require.True(t, mqerr.Is(call(later), mqerr.Fenced), name)
	}
	require.NoError(t, calls["change"](h))
	require.NoError(t, calls["ack"](h))
}

// TestRefusalsWait: a handle is refused for what is confirmed, like everything that is answered.
func TestRefusalsWait(t *testing.T) {
	b, h := openReplicated(t, Options{})
	b.define()
	b.mustSend(topicSync, "x")
	stale := b.mustPop(topicSync, groupA)[0].handle()
	stale.Lease += 8
	h.hold(true)
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicSync), Messages: []brokerapi.Message{message("unconfirmed")}}, func(*brokerapi.SendReply, error) {})
	answered := make(chan error, 1)
	req := &brokerapi.ChangeRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{stale}, Invisible: time.Minute}
	b.proxy.Change(req, func(r *brokerapi.ChangeReply, err error) {
		if err == nil {
			err = r.Errors[0]
		}
		answered <- err
	})
	_, err := b.proxy.DescribeTopic(t.Context(), brokerapi.TopicID(topicSync)) // it comes after them
	require.NoError(t, err)
	require.Empty(t, answered)
	h.hold(false)
	b.engine.Confirm()
	require.True(t, mqerr.Is(<-answered, mqerr.HandleInvalid))
}
