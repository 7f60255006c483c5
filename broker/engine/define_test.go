package engine

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// TestBadDefinitionsAreRefused as a whole, and harm nothing.
func TestBadDefinitionsAreRefused(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	before := b.engine.log.Written()
	good := topic.Definition{ID: 7, Name: "good", Queues: 1, Version: 7}
	for name, defs := range map[string]*Definitions{
		"no queues":   {Topics: []topic.Definition{good, {ID: 8, Name: "bad", Version: 8}}},
		"no attempts": {Topics: []topic.Definition{good}, Groups: []group.Definition{{ID: 8, Name: "bad", Version: 8}}},
		"too long":    {Topics: []topic.Definition{good, {ID: 8, Name: strings.Repeat("x", 1<<20), Queues: 1, Version: 8}}},
	} {
		err := b.engine.Define(t.Context(), defs)
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%s: %v", name, err)
	}
	require.Equal(t, before, b.engine.log.Written())
	_, err := b.send(7, "x")
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
	b.mustSend(topicSync, "the others go on")
}

// TestOldWholeSetDeletesNothingNewer: a set says nothing about definitions that were made after it.
func TestOldWholeSetDeletesNothingNewer(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.mustSend(topicAsync, "one")
	old := definitions()
	old.Topics, old.Groups, old.Version = old.Topics[:1], old.Groups[:1], 1 // topic 2 has version 2, group b 4
	require.NoError(t, b.engine.Define(t.Context(), old))
	require.Len(t, b.mustPop(topicAsync, groupB), 1)
	old.Version = 4
	require.NoError(t, b.engine.Define(t.Context(), old))
	_, err := b.send(topicAsync, "x")
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
}

// TestRepeatedDefinitionWaitsForTheFirst: that a definition is logged already says nothing about the disk.
func TestRepeatedDefinitionWaitsForTheFirst(t *testing.T) {
	fs := &hookFS{FS: memfs.New()}
	b := newBench(t, Options{})
	b.fs = fs
	b.mustOpen()
	b.define()
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	fs.set(func(op, name string) error {
		if op == "sync" && strings.Contains(name, "/log/") {
			<-hold
		}
		return nil
	})
	defs := definitions()
	defs.Topics[0].Version, defs.Version = 9, 9
	free := b.hold() // a turn in which somebody does not wait for the disk: the writer leaves it to the syncer
	sent := make(chan error, 1)
	b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(topicAsync), Messages: []brokerapi.Message{message("x")}}, func(_ *brokerapi.SendReply, err error) { sent <- err })
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- b.engine.Define(t.Context(), defs) }()
	require.Eventually(t, func() bool { e := b.engine; e.inbox.mu.Lock(); defer e.inbox.mu.Unlock(); return len(e.inbox.ops) == 2 }, 10*time.Second, time.Millisecond)
	free()
	require.NoError(t, <-sent)
	go func() { second <- b.engine.Define(t.Context(), defs) }()
	select {
	case err := <-first:
		t.Fatalf("answered before the disk has it: %v", err)
	case err := <-second:
		t.Fatalf("answered before the disk has it: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	require.NoError(t, <-first)
	require.NoError(t, <-second)
}
