package storetest

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// SegmentBytes is the size of a segment in tests, small so that they roll often.
const SegmentBytes = 256 << 10

// Options are those of a small store.
func Options(fs vfs.FS, dir string) store.Options {
	return store.Options{FS: fs, Dir: dir, SegmentBytes: SegmentBytes, QueueFileBytes: 64 << 10}
}

// Bench owns a store as a broker does, with the consume queues as its only view. It is used by one
// goroutine.
type Bench struct {
	Store *store.Store
	// Replayed is how many records the start read from the log.
	Replayed int64
	// Given is, of each queue, below which offset Retain gave it up, or tried to.
	Given map[queue.Key]record.QueueOffset

	t     testing.TB
	batch *commitlog.Batch
	epoch record.Epoch
	now   int64
}

// Open opens and recovers a store and begins the next epoch.
func Open(t testing.TB, fs vfs.FS, dir string) (*Bench, error) {
	t.Helper()
	s, err := store.Open(Options(fs, dir))
	if err != nil {
		return nil, err
	}
	b := &Bench{Store: s, t: t, now: 1_700_000_000_000, Given: map[queue.Key]record.QueueOffset{}}
	if err := b.recover(); err != nil {
		_ = s.Close()
		return nil, err
	}
	b.batch = s.Log().NewBatch()
	b.epoch++
	start := record.EpochStart{Epoch: b.epoch, Incarnation: uint64(b.epoch)}
	_, err = b.TryWrite(record.TypeEpoch, record.EpochStartSize(&start), func(body []byte) { record.PutEpochStart(body, &start) })
	if err == nil {
		err = s.Log().Sync()
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return b, nil
}

// MustOpen is Open where no error is expected.
func MustOpen(t testing.TB, fs vfs.FS, dir string) *Bench {
	t.Helper()
	b, err := Open(t, fs, dir)
	require.NoError(t, err)
	return b
}

func (b *Bench) recover() error {
	from := b.Store.Log().First()
	if c := b.Store.Checkpoint(); c != nil && b.decode(c) == nil {
		from = c.Pos
	} else {
		if err := b.Store.Forget(); err != nil {
			return err
		}
		if from > 0 {
			var err error
			if from, err = b.rebuild(); err != nil {
				return err
			}
		}
	}
	r, err := b.Store.Log().Recover(from, b.apply)
	b.Replayed, b.epoch, b.now = r.Records, max(b.epoch, r.Epoch), max(b.now, r.Time)
	return err
}

func (b *Bench) decode(c *checkpoint.Checkpoint) error {
	if err := b.decodeBase(c); err != nil {
		return err
	}
	dir, err := c.Section(queue.Section)
	if err != nil {
		return err
	}
	return b.Store.Queues().Decode(dir)
}

// base is the section with epoch and time, neither of which goes back.
func (b *Bench) base() checkpoint.Section {
	return checkpoint.Section{Name: "base", Data: binary.LittleEndian.AppendUint64([]byte{byte(b.epoch)}, uint64(b.now))}
}

func (b *Bench) decodeBase(c *checkpoint.Checkpoint) error {
	base, err := c.Section("base")
	if err != nil {
		return err
	}
	b.epoch, b.now = record.Epoch(base[0]), int64(binary.LittleEndian.Uint64(base[1:]))
	return nil
}

func (b *Bench) apply(r record.Record) error {
	switch r.Type {
	case record.TypeMsg:
		m, err := record.DecodeMsg(r.Body)
		if err != nil {
			return err
		}
		return b.Store.Queues().Append(queue.Key{Topic: m.Topic, Queue: m.Queue}, m.Offset, EntryOf(&r.Header, &m))
	case record.TypeMeta:
		m, err := record.DecodeMeta(r.Body)
		if err == nil && m.Kind == record.MetaTopic && m.Deleted {
			b.Store.Queues().Drop(record.TopicID(m.ID))
		}
		return err
	case record.TypeTrim:
		t, err := record.DecodeTrim(r.Body)
		for _, q := range t.Queues {
			b.Store.Queues().DropBefore(queue.Key{Topic: q.Topic, Queue: q.Queue}, q.First)
		}
		return err
	}
	return nil
}

// TryWrite appends one record, of which nothing is synced, and applies it.
func (b *Bench) TryWrite(t record.Type, size int, fill func(body []byte)) (record.Pos, error) {
	b.now++
	b.batch.Reset()
	pos, body := b.batch.Begin(record.Header{Type: t, Epoch: b.epoch, Time: b.now}, size)
	fill(body)
	total := b.batch.Seal()
	if err := b.Store.Log().Write(b.batch); err != nil {
		return 0, err
	}
	r, ref, err := b.Store.Log().Read(pos, total)
	if err != nil {
		return 0, err
	}
	defer ref.Release()
	return pos, b.apply(r)
}

// Write is TryWrite where no error is expected.
func (b *Bench) Write(t record.Type, size int, fill func(body []byte)) record.Pos {
	b.t.Helper()
	pos, err := b.TryWrite(t, size, fill)
	require.NoError(b.t, err)
	return pos
}

// TrySend appends the next message of a queue.
func (b *Bench) TrySend(k queue.Key) error {
	_, next := b.Store.Queues().Bounds(k)
	m := Message(k, next)
	_, err := b.TryWrite(record.TypeMsg, record.MsgSize(&m), func(body []byte) { record.PutMsg(body, &m) })
	return err
}

// Send appends the next n messages of a queue.
func (b *Bench) Send(k queue.Key, n int) {
	b.t.Helper()
	for range n {
		require.NoError(b.t, b.TrySend(k))
	}
}

// DeleteTopic appends the end of a topic.
func (b *Bench) DeleteTopic(topic record.TopicID) {
	b.t.Helper()
	m := record.Meta{Kind: record.MetaTopic, Version: uint64(b.now), ID: uint32(topic), Deleted: true, Name: []byte("topic")}
	b.Write(record.TypeMeta, record.MetaSize(&m), func(body []byte) { record.PutMeta(body, &m) })
}

// Sync makes everything written durable.
func (b *Bench) Sync() {
	b.t.Helper()
	require.NoError(b.t, b.Store.Log().Sync())
}

// Checkpoint saves the views.
func (b *Bench) Checkpoint() error {
	b.t.Helper()
	at := b.Store.Log().Tail()
	dir, err := b.Store.Queues().Encode(nil)
	if err != nil {
		return err
	}
	return b.Store.SaveCheckpoint(at, []checkpoint.Section{b.base(), {Name: queue.Section, Data: dir}})
}

// Require reads all messages of a queue through its entries and compares them with the samples.
func (b *Bench) Require(k queue.Key, n int) {
	b.t.Helper()
	lo, hi := b.RequireKept(k)
	require.Equal(b.t, [2]int{0, n}, [2]int{int(lo), int(hi)}, "bounds of %v", k)
}

func (b *Bench) requireMessage(e queue.Entry, want record.Msg) {
	b.t.Helper()
	r, ref, err := b.Store.Log().Read(e.Pos, e.Size)
	require.NoError(b.t, err)
	defer ref.Release()
	m, err := record.DecodeMsg(r.Body)
	require.NoError(b.t, err)
	require.Equal(b.t, want, m)
	require.Equal(b.t, EntryOf(&r.Header, &m), e)
}

// Close closes the store as after a crash of the process: nothing is synced or saved.
func (b *Bench) Close() {
	b.t.Helper()
	require.NoError(b.t, b.Store.Close())
}

// CloseClean saves the views and closes with the marker of a clean stop.
func (b *Bench) CloseClean() {
	b.t.Helper()
	require.NoError(b.t, b.Checkpoint())
	require.NoError(b.t, b.Store.CloseClean(uint64(b.epoch)))
}
