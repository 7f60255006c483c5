package storetest

import (
	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/snapshot"
)

// Retain takes one step of retention, as a broker does: all segments before the one at index keep go, if there
// are so many. Queues begin behind the messages in them.
func (b *Bench) Retain(keep int) error {
	b.t.Helper()
	segments := b.Store.Log().Segments()
	if keep < 1 || keep >= len(segments) {
		return nil
	}
	d := segments[keep]
	if err := b.trim(d.Base, d.FirstTime); err != nil {
		return err
	}
	at := b.Store.Log().Written()
	sections := []checkpoint.Section{b.base(), {Name: queue.Section, Data: b.Store.Queues().EncodeBounds(nil)}}
	for c := range snapshot.Chunks(at, sections, 40) { // many chunks
		if _, err := b.TryWrite(record.TypeSnapshot, record.SnapshotSize(c), func(body []byte) { record.PutSnapshot(body, c) }); err != nil {
			return err
		}
	}
	if err := b.Checkpoint(); err != nil {
		return err
	}
	_, err := b.Store.DropBefore(d.Base)
	return err
}

// trim writes one TRIM record for each queue.
func (b *Bench) trim(d record.Pos, at int64) error {
	keys := b.Store.Queues().Keys()
	for i, k := range keys {
		first, err := b.Store.Queues().Seek(k, func(e *queue.Entry) bool { return e.Time < at || e.Time == at && e.Pos < d })
		if err != nil {
			return err
		}
		b.Given[k] = first
		t := record.Trim{At: d, Time: at, Last: i == len(keys)-1, Queues: []record.TrimQueue{{Topic: k.Topic, Queue: k.Queue, First: first}}}
		if _, err := b.TryWrite(record.TypeTrim, record.TrimSize(&t), func(body []byte) { record.PutTrim(body, &t) }); err != nil {
			return err
		}
	}
	return nil
}

// rebuild makes the views from a snapshot in the log and the records that the queues of the snapshot are of. It
// returns where the replay goes on.
func (b *Bench) rebuild() (record.Pos, error) {
	f, err := snapshot.Find(b.Store.Log().First(), b.Store.Log().Scan)
	if f == nil {
		return 0, mqerr.New(mqerr.Corrupt, "there is no snapshot: %w", err)
	}
	if err := b.decodeBase(f.Checkpoint()); err != nil {
		return 0, err
	}
	data, err := f.Checkpoint().Section(queue.Section)
	if err != nil {
		return 0, err
	}
	bounds, err := queue.DecodeBounds(data)
	if err != nil {
		return 0, err
	}
	first := map[queue.Key]record.QueueOffset{}
	for _, q := range bounds {
		first[q.Key] = q.Min
		if err := b.Store.Queues().Start(q.Key, q.Min); err != nil {
			return 0, err
		}
	}
	err = b.Store.Log().Scan(f.Begin, func(r record.Record) error {
		if r.Type != record.TypeMsg || r.Pos >= f.At {
			return nil
		}
		m, err := record.DecodeMsg(r.Body)
		if lo, ok := first[queue.Key{Topic: m.Topic, Queue: m.Queue}]; err != nil || !ok || m.Offset < lo {
			return err
		}
		return b.apply(r)
	})
	// The log ends with what a crash left: the recovery looks at that.
	require.Equal(b.t, data, b.Store.Queues().EncodeBounds(nil), "what was scanned is all of what the snapshot says: %v", err)
	return f.At, nil
}

// RequireKept reads all messages of a queue that are there and compares them with the samples. It returns the
// bounds.
func (b *Bench) RequireKept(k queue.Key) (lo, hi record.QueueOffset) {
	b.t.Helper()
	lo, hi = b.Store.Queues().Bounds(k)
	entries := make([]queue.Entry, hi-lo)
	n, err := b.Store.Queues().Read(k, lo, entries)
	require.NoError(b.t, err)
	require.Len(b.t, entries, n)
	for i, e := range entries {
		b.requireMessage(e, Message(k, lo+record.QueueOffset(i)))
	}
	return lo, hi
}
