package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/index"
	"github.com/perigee-mq/perigee/store/record"
)

// sysKeys is encoded SystemProperties with keys.
func sysKeys(keys ...string) []byte {
	var b []byte
	for _, k := range keys {
		b = append(append(b, 2<<3|2, byte(len(k))), k...)
	}
	return b
}

// sendKeyed stores a message with keys and returns where it is.
func (b *bench) sendKeyed(t record.TopicID, body string, keys ...string) (brokerapi.Message, brokerapi.SendResult) {
	b.t.Helper()
	m := message(body)
	m.Sys = sysKeys(keys...)
	r, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) {
		b.proxy.Send(&brokerapi.SendRequest{Topic: brokerapi.TopicID(t), Messages: []brokerapi.Message{m}}, done)
	})
	require.NoError(b.t, err)
	return m, r.Results[0]
}

func (b *bench) find(req brokerapi.FindRequest) *brokerapi.FindReply {
	b.t.Helper()
	if req.Max == 0 {
		req.Max = 1024
	}
	r, err := b.proxy.Find(b.t.Context(), &req)
	require.NoError(b.t, err)
	return r
}

func positions(r *brokerapi.FindReply) []brokerapi.LogPos {
	var out []brokerapi.LogPos
	for _, m := range r.Messages {
		out = append(out, m.Pos)
	}
	return out
}

// indexed waits until the index has all its files.
func (b *bench) indexed() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { s := b.engine.Index(); return s.Pending+s.Missing == 0 }, 20*time.Second, time.Millisecond)
}

func TestFind(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	var want []brokerapi.LogPos
	var last brokerapi.Message
	var at brokerapi.SendResult
	for i := range 500 {
		b.clock.advance(time.Millisecond)
		last, at = b.sendKeyed(topicSync, fmt.Sprintf("body %d", i), "all", fmt.Sprintf("k%d", i))
		want = append(want, at.Pos)
		if i%10 == 0 {
			b.sendKeyed(topicAsync, "of another topic", "all")
		}
	}
	slices.Reverse(want)
	sync := brokerapi.TopicID(topicSync)
	require.Greater(t, b.engine.Index().Runs, 10)
	b.indexed()

	all := b.find(brokerapi.FindRequest{Topic: sync, Key: "all"})
	require.Equal(t, want, positions(all), "newest first, of this topic")
	require.False(t, all.More)
	one := b.find(brokerapi.FindRequest{Topic: sync, Key: "k7", Bodies: true})
	require.Equal(t, want[500-1-7:500-7], positions(one))
	require.Equal(t, "body 7", string(one.Messages[0].Body))
	require.Equal(t, "visible", one.Messages[0].State)
	byID := b.find(brokerapi.FindRequest{Topic: sync, ID: string(last.ID)})
	require.Equal(t, want[:1], positions(byID))
	require.Nil(t, byID.Messages[0].Body)
	require.Equal(t, len(last.Body), byID.Messages[0].Size)
	byPlace := b.find(brokerapi.FindRequest{Topic: sync, Queue: at.Queue, Offset: at.Offset})
	require.Equal(t, byID.Messages, byPlace.Messages)
	require.Empty(t, b.find(brokerapi.FindRequest{Topic: sync, Key: string(last.ID)}).Messages, "an id is no key")
	require.Empty(t, b.find(brokerapi.FindRequest{Topic: sync, ID: "all"}).Messages)

	some := b.find(brokerapi.FindRequest{Topic: sync, Key: "all", Max: 10})
	require.Equal(t, want[:10], positions(some))
	require.True(t, some.More)
	from, to := all.Messages[300].StoreTime, all.Messages[200].StoreTime
	require.Equal(t, want[201:301], positions(b.find(brokerapi.FindRequest{Topic: sync, Key: "all", FromMS: from, ToMS: to})), "from is included, to is not")
	require.Empty(t, b.find(brokerapi.FindRequest{Topic: sync, Key: "k400", FromMS: from - 1000, ToMS: from}).Messages)

	for _, bad := range []brokerapi.FindRequest{
		{Topic: sync, Key: "all"},
		{Topic: sync, Key: "all", Max: 2000},
		{Topic: sync, Key: "all", ID: "x", Max: 1},
		{Topic: sync, Key: "all", Max: 1, FromMS: 5, ToMS: 5},
		{Topic: sync, Queue: -1, Max: 1},
		{Topic: sync, Queue: 17, Max: 1},
	} {
		_, err := b.proxy.Find(t.Context(), &bad)
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	}
	_, err := b.proxy.Find(t.Context(), &brokerapi.FindRequest{Topic: 99, Key: "x", Max: 1})
	require.True(t, mqerr.Is(err, mqerr.TopicNotFound), "%v", err)
	_, err = b.proxy.Find(t.Context(), &brokerapi.FindRequest{Topic: sync, Queue: 0, Offset: 1 << 40, Max: 1})
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
}

// TestIndexAfterRestart: from the log, from a checkpoint, and without its files the index is the same.
func TestIndexAfterRestart(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	ask := brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), Key: "all"}
	fill := func(n int) {
		for i := range n {
			b.sendKeyed(topicSync, fmt.Sprintf("body %d", i), "all")
		}
	}
	names := func() []string {
		names, err := b.fs.List("data/index")
		require.NoError(t, err)
		return names
	}
	fill(333)
	b.indexed()
	want, found := b.state(), b.find(ask)
	require.Len(t, found.Messages, 333)
	same := func(how string) {
		t.Helper()
		b.indexed()
		require.Equal(t, want[sectionIndex], b.state()[sectionIndex], how)
		again := b.find(ask)
		require.Empty(t, again.Unknown)
		require.Equal(t, found.Messages, again.Messages, how)
		require.Len(t, names(), 6, how)
	}
	same("as it was")
	b.again()
	same("from the log")
	require.EqualValues(t, 6, b.engine.Index().Adopted, "the files of before are good")

	_, err := b.engine.Close()
	require.NoError(t, err)
	require.NoError(t, b.store.Close())
	b.mustOpen()
	same("from a checkpoint")
	require.Zero(t, b.engine.Index().Written)

	b.kill()
	for i, name := range names() {
		switch i {
		case 0, 1:
			require.NoError(t, b.fs.Remove("data/index/"+name))
		case 2, 3:
			require.NoError(t, vfs.ReplaceFile(b.fs, "data/index/"+name, []byte("no file of an index")))
		}
	}
	b.fs.(*memfs.FS).Restart()
	b.mustOpen()
	for b.engine.Index().Rebuilt < 4 { // who reads the file finds that it is damaged
		r := b.find(ask)
		require.True(t, len(r.Messages) == 333 || len(r.Unknown) > 0)
	}
	same("without its files")
	fill(100)
	b.indexed()
	require.Len(t, b.find(ask).Messages, 433)
}

// TestFindComparesTheText: an entry of the index that has the right hash is not yet the right message.
func TestFindComparesTheText(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	_, right := b.sendKeyed(topicSync, "right", "asked for")
	_, other := b.sendKeyed(topicSync, "other", "another key")
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		hash := index.Hash(topicSync, index.Key, []byte("asked for"))
		w.views.index.Add(record.Pos(other.Pos), w.stamp, []uint64{hash}) // as if the two keys had one hash
	}))
	got := b.find(brokerapi.FindRequest{Topic: brokerapi.TopicID(topicSync), Key: "asked for"})
	require.Equal(t, []brokerapi.LogPos{right.Pos}, positions(got))
}
