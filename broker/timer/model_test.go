package timer

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/store/record"
)

// model is the table as plainly as it can be said.
type model map[record.TopicID]*modelTopic

type modelTopic struct{ waiting, recalled map[key]Entry }

func (m model) topic(id record.TopicID) *modelTopic {
	if m[id] == nil {
		m[id] = &modelTopic{map[key]Entry{}, map[key]Entry{}}
	}
	return m[id]
}

func sorted(m map[key]Entry) []Entry {
	return slices.SortedFunc(maps.Values(m), func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Pos, b.Pos)) })
}

// forget is what one record lets be forgotten.
func (p *modelTopic) forget(now int64) {
	for i, e := range sorted(p.recalled) {
		if i < forgetMax && e.Due <= now-Keep {
			delete(p.recalled, key{e.Due, e.Pos})
		}
	}
}

// encode is what Encode should give.
func (m model) encode() []byte {
	t := New()
	for _, id := range slices.Sorted(maps.Keys(m)) {
		p := &topic{id: id, head: -1}
		for _, e := range sorted(m[id].waiting) {
			p.waiting.insert(&e)
		}
		for _, e := range sorted(m[id].recalled) {
			p.recalled.insert(&e)
		}
		if p.waiting.n+p.recalled.n > 0 {
			t.topics[id] = p
		}
	}
	return t.Encode(nil)
}

// TestTableIsTheModel: random operations give the model's answers and the model's bytes; a snapshot stays
// what it was.
func TestTableIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, m := New(), model{}
		now, pos := int64(1_000_000), record.Pos(0)
		spread := rapid.SampledFrom([]int64{0, 3, 1000, 10 * Keep}).Draw(t, "spread")
		var shared [][]byte
		var was []byte
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			id := record.TopicID(rapid.IntRange(1, 3).Draw(t, "topic"))
			p := m.topic(id)
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 4:
				for range rapid.SampledFrom([]int{1, 2, 50, 3 * leafMax}).Draw(t, "adds") {
					pos += 8
					mix := int64(uint64(pos) * 0x9e3779b97f4a7c15 >> 1)
					e := Entry{Due: now + 1 + mix%(spread+1), Pos: pos, Size: uint32(pos) * 8, Queue: record.QueueID(mix%5) - 1, TagHash: uint64(mix), GroupHash: uint64(pos)}
					require.NoError(t, tab.Add(id, e, now))
					p.waiting[key{e.Due, e.Pos}] = e
					p.forget(now)
				}
			case op < 6: // deliver
				now += spread / 4
				due := tab.Due(id, now, rapid.IntRange(1, 2*leafMax).Draw(t, "limit"), nil)
				for i, e := range sorted(p.waiting) {
					if i < len(due) {
						require.Equal(t, e, due[i])
					}
				}
				d := record.Deliver{Topic: id}
				for _, e := range due {
					require.LessOrEqual(t, e.Due, now)
					d.Items = append(d.Items, record.Place{Queue: max(e.Queue, 0), Ref: e.Pos, Size: e.Size, TagHash: e.TagHash, GroupHash: e.GroupHash})
					delete(p.waiting, key{e.Due, e.Pos})
				}
				require.NoError(t, tab.ApplyDeliver(&d, now))
				p.forget(now)
			case op < 9: // recall
				all := sorted(p.waiting)
				r := record.Recall{Topic: id}
				for range rapid.SampledFrom([]int{1, 2, leafMax}).Draw(t, "recalls") {
					if len(all) == 0 {
						break
					}
					i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					e := all[i]
					all = slices.Delete(all, i, i+1)
					state, found := tab.State(id, e.Due, e.Pos)
					require.Equal(t, Waiting, state)
					require.Equal(t, e, found)
					r.Items = append(r.Items, record.Recalled{Ref: e.Pos, DeliverAt: e.Due})
					delete(p.waiting, key{e.Due, e.Pos})
					p.recalled[key{e.Due, e.Pos}] = e
				}
				if len(r.Items) > 0 {
					require.NoError(t, tab.ApplyRecall(&r, now))
					p.forget(now)
				}
				if shared == nil {
					shared, was = tab.Share(), m.encode()
				}
			default:
				if rapid.IntRange(0, 5).Draw(t, "drop") == 0 {
					tab.DropTopic(id)
					delete(m, id)
					continue
				}
				now += rapid.Int64Range(0, Keep).Draw(t, "pass")
			}
			for k := range p.recalled {
				state, _ := tab.State(id, k.due, k.pos)
				require.Equal(t, Recalled, state)
			}
			if !bytes.Equal(tab.Encode(nil), m.encode()) {
				t.Fatal("the table is not the model")
			}
			next(t, tab, m)
		}
		require.Equal(t, was, slices.Concat(shared...), "a snapshot has changed")
		again := New()
		require.NoError(t, again.Decode(tab.Encode(nil)))
		require.Equal(t, tab.Encode(nil), again.Encode(nil))
		require.Equal(t, tab.Len(), again.Len())
		require.Equal(t, tab.Recalled(), again.Recalled())
		next(t, again, m)
	})
}

func next(t *rapid.T, tab *Table, m model) {
	least, n := int64(-1), 0
	for _, p := range m {
		n += len(p.waiting)
		for k := range p.waiting {
			if least < 0 || k.due < least {
				least = k.due
			}
		}
	}
	require.Equal(t, n, tab.Len())
	id, due, ok := tab.Next()
	require.Equal(t, n > 0, ok)
	if ok {
		require.Equal(t, least, due)
		require.Equal(t, due, tab.Due(id, due, 1, nil)[0].Due)
	}
}
