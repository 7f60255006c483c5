package txn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// model is the table as plainly as it can be said: lists, and a look at everything each time.
type model struct {
	open  []Half // by position
	ended []Verdict
	o     Options
}

func (m *model) find(pos record.Pos) int {
	return slices.IndexFunc(m.open, func(h Half) bool { return h.Pos == pos })
}

func (m *model) byID(topic record.TopicID, id ID) []Half {
	var out []Half
	for _, h := range m.open {
		if h.Topic == topic && h.ID == id {
			out = append(out, h)
		}
	}
	return out
}

func (m *model) firstOf(topic record.TopicID) (Half, bool) {
	best, found := Half{}, false
	for _, h := range m.open {
		if h.Topic == topic && (!found || h.Next < best.Next) {
			best, found = h, true
		}
	}
	return best, found
}

func (m *model) verdict(topic record.TopicID, id ID) (Verdict, bool) {
	for _, v := range slices.Backward(m.ended) {
		if v.Topic == topic && v.ID == id {
			return v, true
		}
	}
	return Verdict{}, false
}

func (m *model) end(pos record.Pos, source record.TxnSource, commit bool, at int64) {
	i := m.find(pos)
	h := m.open[i]
	m.open = slices.Delete(m.open, i, i+1)
	m.ended = append(m.ended, Verdict{Topic: h.Topic, ID: h.ID, Pos: pos, Digest: h.Digest, Stored: h.Stored, Ended: at, Source: source, Commit: commit})
}

func (m *model) forget(at int64) {
	m.ended = m.ended[max(0, len(m.ended)-m.o.VerdictsMax):]
	for len(m.ended) > 0 && m.ended[0].Ended < at-m.o.VerdictsFor {
		m.ended = m.ended[1:]
	}
}

func idOf(n int) ID { return IDOf(fmt.Append(nil, n)) }

// TestModel compares the table with the model, after a decode of what it encodes, too.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{VerdictsMax: rapid.IntRange(1, 8).Draw(t, "verdicts"), VerdictsFor: 50}
		tab, m := New(o), &model{o: o}
		now, pos := int64(1000), record.Pos(0)
		topic := func() record.TopicID { return record.TopicID(rapid.IntRange(1, 3).Draw(t, "topic")) }
		some := func() record.Pos {
			return m.open[rapid.IntRange(0, len(m.open)-1).Draw(t, "half")].Pos
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, 9).Draw(t, "time")
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op < 4:
				pos += 8 * record.Pos(rapid.IntRange(1, 9).Draw(t, "gap"))
				h := Half{
					Pos: pos, Size: 64, Topic: topic(), Queue: record.QueueID(rapid.IntRange(-1, 3).Draw(t, "queue")), TagHash: uint64(pos), Digest: 7,
					ID: idOf(rapid.IntRange(0, 5).Draw(t, "id")), Stored: now, Next: now + rapid.Int64Range(0, 20).Draw(t, "first"),
				}
				require.NoError(t, tab.Add(h))
				m.open = append(m.open, h)
			case op < 6 && len(m.open) > 0:
				p := some()
				h := &m.open[m.find(p)]
				h.Checks, h.Next = h.Checks+1, now+rapid.Int64Range(-5, 20).Draw(t, "next")
				require.NoError(t, tab.Check(&record.TxnCheck{Topic: h.Topic, Items: []record.TxnChecked{{Half: p, Checks: h.Checks, Next: h.Next}}}))
			case op < 9 && len(m.open) > 0:
				p, commit := some(), rapid.Bool().Draw(t, "commit")
				e := record.TxnEnd{Source: record.TxnByCheck}
				if commit {
					e.Committed = []record.TxnPlace{{Half: p}}
				} else {
					e.RolledBack = []record.Pos{p}
				}
				require.NoError(t, tab.End(&e, now))
				require.True(t, mqerr.Is(tab.End(&e, now), mqerr.Corrupt), "ended twice")
				m.end(p, e.Source, commit, now)
				m.forget(now)
			case op == 9:
				id := topic()
				tab.DropTopic(id)
				m.open = slices.DeleteFunc(m.open, func(h Half) bool { return h.Topic == id })
			}
			if rapid.IntRange(0, 3).Draw(t, "decode") == 0 {
				b := tab.Encode(nil)
				tab = New(o)
				require.NoError(t, tab.Decode(b))
				require.Equal(t, b, tab.Encode(nil))
			}
			same(t, m, tab)
		}
	})
}

func same(t *rapid.T, m *model, tab *Table) {
	require.Equal(t, len(m.open), tab.Len())
	require.Equal(t, len(m.ended), tab.Verdicts())
	oldest, ok := tab.Oldest()
	require.Equal(t, len(m.open) > 0, ok)
	if ok {
		require.Equal(t, m.open[0], oldest)
	}
	for _, h := range m.open {
		got, ok := tab.Get(h.Pos)
		require.True(t, ok)
		require.Equal(t, h, got)
	}
	topics := map[record.TopicID]bool{}
	tab.EachTopic(func(id record.TopicID) { topics[id] = true })
	for topic := range record.TopicID(4) {
		first, found := m.firstOf(topic)
		got, ok := tab.First(topic)
		require.Equal(t, found, ok)
		require.Equal(t, first, got)
		require.Equal(t, found, topics[topic])
		for n := range 6 {
			require.Equal(t, m.byID(topic, idOf(n)), tab.Open(nil, topic, idOf(n)))
			want, has := m.verdict(topic, idOf(n))
			v, ok := tab.Verdict(topic, idOf(n))
			require.Equal(t, has, ok)
			require.Equal(t, want, v)
		}
	}
}

func TestRefusals(t *testing.T) {
	tab := New(Options{})
	require.NoError(t, tab.Add(Half{Pos: 8}))
	require.True(t, mqerr.Is(tab.Add(Half{Pos: 8}), mqerr.Corrupt))
	require.True(t, mqerr.Is(tab.Check(&record.TxnCheck{Items: []record.TxnChecked{{Half: 16}}}), mqerr.Corrupt))
	require.True(t, mqerr.Is(tab.End(&record.TxnEnd{RolledBack: []record.Pos{16}}, 0), mqerr.Corrupt))
	require.Equal(t, 1, tab.Len())
}

// sample is a table with something of everything.
func sample(tb testing.TB) *Table {
	tab := New(Options{})
	for i := range 20 {
		err := tab.Add(Half{Pos: record.Pos(8 * (i + 1)), Size: 80, Topic: record.TopicID(i % 3), Queue: record.QueueID(i%4 - 1), ID: idOf(i / 2), Stored: int64(1000 + i), Next: int64(7000 + i)})
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := tab.Check(&record.TxnCheck{Items: []record.TxnChecked{{Half: 16, Checks: 2, Next: 1}}}); err != nil {
		tb.Fatal(err)
	}
	if err := tab.End(&record.TxnEnd{Source: record.TxnByClient, Committed: []record.TxnPlace{{Half: 24}, {Half: 8}}, RolledBack: []record.Pos{40}}, 9000); err != nil {
		tb.Fatal(err)
	}
	return tab
}

func TestDecodeRefusesCutStates(t *testing.T) {
	whole := sample(t).Encode(nil)
	tab := New(Options{})
	require.NoError(t, tab.Decode(whole))
	for n := range whole {
		require.Truef(t, mqerr.Is(tab.Decode(whole[:n]), mqerr.Corrupt), "%d of %d bytes", n, len(whole))
		require.Zero(t, tab.Len())
	}
	require.True(t, mqerr.Is(tab.Decode(append(whole, 0)), mqerr.Corrupt))
}

func FuzzDecode(f *testing.F) {
	f.Add(New(Options{}).Encode(nil))
	f.Add(sample(f).Encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		tab := New(Options{})
		if err := tab.Decode(b); err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) {
				t.Fatal(err)
			}
			return
		}
		again := New(Options{})
		if err := again.Decode(tab.Encode(nil)); err != nil {
			t.Fatal(err)
		}
	})
}
