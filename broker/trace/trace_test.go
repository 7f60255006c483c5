package trace

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

const topicT record.TopicID = 3

// builder makes records one after the other.
type builder struct{ pos record.Pos }

func (b *builder) add(t record.Type, body []byte) record.Record {
	r := record.Record{Header: record.Header{Type: t, Pos: b.pos, Time: int64(b.pos), Size: uint32(record.Total(len(body)))}, Body: body}
	b.pos = r.End()
	return r
}

func body(size int, put func([]byte)) []byte {
	b := make([]byte, size)
	put(b)
	return b
}

func (b *builder) lease(ck record.PopCk) record.Record {
	return b.add(record.TypePopCk, body(record.PopCkSize(&ck), func(d []byte) { record.PutPopCk(d, &ck) }))
}

func (b *builder) ack(a record.PopAck) record.Record {
	return b.add(record.TypePopAck, body(record.PopAckSize(&a), func(d []byte) { record.PutPopAck(d, &a) }))
}

// history is a random log of one message and of others in its neighbourhood.
func history(t *rapid.T) []record.Record {
	b := &builder{pos: 4096}
	m := record.Msg{Topic: topicT, Queue: 1, Offset: 5, Type: record.MsgNormal, ID: []byte("id")}
	all := []record.Record{b.add(record.TypeMsg, body(record.MsgSize(&m), func(d []byte) { record.PutMsg(d, &m) }))}
	queue := rapid.SampledFrom([]record.QueueID{1, 1, 1, 0})
	off := rapid.SampledFrom([]record.QueueOffset{5, 5, 5, 4, 6})
	group := rapid.SampledFrom([]record.GroupID{1, 2})
	for range rapid.IntRange(1, 60).Draw(t, "records") {
		q, o, g := queue.Draw(t, "queue"), off.Draw(t, "offset"), group.Draw(t, "group")
		client := record.ClientNum(rapid.IntRange(1, 3).Draw(t, "client"))
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0, 1:
			ck := record.PopCk{
				Topic: topicT, Group: g, Until: int64(b.pos) + 100, Client: client, Session: rapid.Bool().Draw(t, "session"),
				Sections: []record.PopSection{{Queue: q, Items: []record.PopItem{{Offset: o, Attempt: uint16(rapid.IntRange(0, 3).Draw(t, "attempt")), Prev: -1}}}},
			}
			if rapid.Bool().Draw(t, "named") {
				ck.ClientName = []byte{'c', '0' + byte(client)}
			}
			all = append(all, b.lease(ck))
		case 2:
			all = append(all, b.ack(record.PopAck{Sections: []record.AckSection{{Topic: topicT, Group: g, Queue: q, Offsets: []record.QueueOffset{o}}}}))
		case 3:
			c := record.PopChange{Topic: topicT, Group: g, Until: int64(b.pos) + rapid.Int64Range(0, 1000).Draw(t, "until"), Changes: []record.Change{{Queue: q, Offset: o}}}
			all = append(all, b.add(record.TypePopChange, body(record.PopChangeSize(&c), func(d []byte) { record.PutPopChange(d, &c) })))
		case 4:
			e := record.SessionEnd{Client: client, Until: int64(b.pos)}
			all = append(all, b.add(record.TypeSessionEnd, body(record.SessionEndSize(&e), func(d []byte) { record.PutSessionEnd(d, &e) })))
		default:
			i := record.Offsets{Items: []record.OffsetItem{{Kind: record.OffsetReset, Topic: topicT, Group: g, Queue: q, Offset: o}}}
			all = append(all, b.add(record.TypeOffset, body(record.OffsetsSize(&i), func(d []byte) { record.PutOffsets(d, &i) })))
		}
	}
	return all
}

// TestContinued: a trace that is encoded and decoded between any two records tells the same, and no client is
// named whose name the records do not have.
func TestContinued(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := history(t)
		whole, parts := New(topicT, all[0].Pos), New(topicT, all[0].Pos)
		var want, got []Event
		for i := range all {
			var err error
			want, err = whole.Apply(want, &all[i])
			require.NoError(t, err)
			if rapid.Bool().Draw(t, "cut") {
				b, err := parts.Encode()
				require.NoError(t, err)
				parts, err = Decode(b, topicT, all[0].Pos)
				require.NoError(t, err)
			}
			got, err = parts.Apply(got, &all[i])
			require.NoError(t, err)
		}
		require.Equal(t, want, got)
		require.Equal(t, Stored, want[0].What)
		require.True(t, slices.IsSortedFunc(want, func(a, b Event) int { return int(a.Pos - b.Pos) }))
		for _, e := range want {
			require.True(t, e.Unnamed == 0 || e.Client == Unnamed(e.Unnamed))
		}
	})
}

// TestNumbersAreUsedAgain: a number means another client after the end of a session; what the first one holds
// stays its own.
func TestNumbersAreUsedAgain(t *testing.T) {
	b := &builder{}
	m := record.Msg{Topic: topicT, Queue: 1, Offset: 5, Type: record.MsgNormal, ID: []byte("id")}
	take := func(g record.GroupID, name string) record.Record {
		return b.lease(record.PopCk{Topic: topicT, Group: g, Client: 7, ClientName: []byte(name), Sections: []record.PopSection{{Queue: 1, Items: []record.PopItem{{Offset: 5, Attempt: 1, Prev: -1}}}}})
	}
	done := func(g record.GroupID) record.Record {
		return b.ack(record.PopAck{Sections: []record.AckSection{{Topic: topicT, Group: g, Queue: 1, Offsets: []record.QueueOffset{5}}}})
	}
	end := record.SessionEnd{Client: 7}
	l := New(topicT, 0)
	var events []Event
	for _, r := range []record.Record{
		b.add(record.TypeMsg, body(record.MsgSize(&m), func(d []byte) { record.PutMsg(d, &m) })),
		take(1, ""), take(2, "first"),
		b.add(record.TypeSessionEnd, body(record.SessionEndSize(&end), func(d []byte) { record.PutSessionEnd(d, &end) })),
		take(3, "second"), done(1), done(2), done(3),
	} {
		var err error
		events, err = l.Apply(events, &r)
		require.NoError(t, err)
	}
	var names []string
	for _, e := range events[1:] {
		names = append(names, e.Client)
	}
	require.Equal(t, []string{"client #7", "first", "second", "client #7", "first", "second"}, names)
}

// FuzzApply: any bytes as any record, and as the state, are refused or taken; nothing panics.
func FuzzApply(f *testing.F) {
	l := New(topicT, 4096)
	state, err := l.Encode()
	require.NoError(f, err)
	f.Add(uint8(record.TypeMsg), []byte{1, 0}, state)
	f.Add(uint8(record.TypePopCk), []byte{3, 1, 0, 9, 1, 1, 1, 1, 4, 5}, []byte(`{"topic":3,"pos":4096,"next":4096,"queue":1,"offset":5}`))
	f.Add(uint8(record.TypeSkip), []byte{3, 1, 1, 0, 9}, []byte(`{"topic":3,"pos":4096,"next":5000,"clients":null}`))
	f.Fuzz(func(t *testing.T, kind uint8, b, state []byte) {
		l, err := Decode(state, topicT, 4096)
		if err != nil {
			require.True(t, mqerr.Is(err, mqerr.Invalid))
			return
		}
		r := record.Record{Header: record.Header{Type: record.Type(kind), Pos: l.Next, Size: 48}, Body: b}
		if _, err := l.Apply(nil, &r); err == nil {
			_, err = json.Marshal(l)
			require.NoError(t, err)
		}
	})
}
