package record_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/golden.txt anew: only for a new layout version")

// whole makes the record that holds a body.
func whole(typ record.Type, body []byte) []byte {
	b := make([]byte, record.Total(len(body)))
	copy(b[record.HeaderSize:], body)
	record.Seal(b, &record.Header{
		Type: typ, Flags: record.FlagMore, Size: uint32(len(b)), Tail: uint16(len(b) - record.HeaderSize - len(body)),
		Pos: 1 << 32, Epoch: 5, Time: 1_700_000_000_000,
	})
	return b
}

func TestEveryTypeHasACodec(t *testing.T) {
	covered := map[record.Type]bool{record.TypePad: true}
	for _, k := range kinds {
		covered[k.typ] = true
	}
	h := record.Header{Version: record.Version}
	for h.Type = 1; h.Supported() == nil; h.Type++ {
		require.True(t, covered[h.Type], "%v", h.Type)
		require.NotContains(t, h.Type.String(), "type", "a name for %d", h.Type)
	}
	require.Equal(t, record.TypeTrim+1, h.Type)
}

func TestRoundTrip(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.typ.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				v := k.draw(t)
				b := k.encode(v)
				got, err := k.decode(b)
				require.NoError(t, err)
				require.Equal(t, v, got)
				for _, n := range []int{1, len(b) / 2, len(b) - 1} { // what is cut short is refused or is another value
					if n < len(b) && n >= 0 {
						if got, err := k.decode(b[:n]); err == nil {
							require.NotEqual(t, v, got)
						}
					}
				}
			})
		})
	}
}

// TestGolden holds the bytes of one record of each type: the format cannot change unnoticed.
func TestGolden(t *testing.T) {
	const name = "testdata/golden.txt"
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "%s %s\n", k.typ, hex.EncodeToString(whole(k.typ, k.encode(k.sample))))
	}
	pad := make([]byte, record.HeaderSize)
	record.SealPad(pad, &record.Header{Size: 4096, Pos: 1 << 32, Epoch: 5, Time: 1_700_000_000_000})
	fmt.Fprintf(&b, "%s %s\n", record.TypePad, hex.EncodeToString(pad))
	if *rewrite {
		require.NoError(t, os.WriteFile(name, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String(), "the layout changed: old logs become unreadable")
	for i, line := range strings.Split(strings.TrimSpace(string(want)), "\n") {
		text := strings.Fields(line)
		raw, err := hex.DecodeString(text[1])
		require.NoError(t, err)
		r, err := record.Decode(raw)
		require.NoError(t, err)
		require.Equal(t, text[0], r.Type.String())
		require.Equal(t, record.Header{
			Type: r.Type, Version: 1, Flags: r.Flags, Size: r.Size, Tail: r.Tail, CRC: r.CRC, Pos: 1 << 32, Epoch: 5, Time: 1_700_000_000_000,
		}, r.Header)
		if i < len(kinds) {
			v, err := kinds[i].decode(r.Body)
			require.NoError(t, err)
			require.Equal(t, kinds[i].sample, v)
		}
	}
}

// TestDamage flips each bit of a record: none goes unnoticed.
//
//fault:damage each bit of a record is flipped => none goes unnoticed
func TestDamage(t *testing.T) {
	b := whole(record.TypeMsg, kinds[0].encode(kinds[0].sample))
	_, err := record.Decode(b)
	require.NoError(t, err)
	for i := range len(b) * 8 {
		b[i/8] ^= 1 << (i % 8)
		_, err := record.Decode(b)
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "bit %d: %v", i, err)
		b[i/8] ^= 1 << (i % 8)
	}
	for n := range len(b) {
		_, err := record.Decode(b[:n])
		require.True(t, mqerr.Is(err, mqerr.Corrupt), "%d bytes: %v", n, err)
	}
}

func TestNewerIsNamed(t *testing.T) {
	b := make([]byte, record.HeaderSize)
	record.Seal(b, &record.Header{Type: 99, Size: record.HeaderSize, Pos: 4096})
	_, err := record.Decode(b)
	require.True(t, mqerr.Is(err, mqerr.Unsupported), "%v", err)
	require.ErrorContains(t, err, "type 99")
	require.ErrorContains(t, err, "4096")
	require.ErrorContains(t, err, "later")

	h := record.Header{Version: record.Version + 1, Type: record.TypeMsg}
	require.True(t, mqerr.Is(h.Supported(), mqerr.Unsupported))
	h.Version = 0
	require.True(t, mqerr.Is(h.Supported(), mqerr.Unsupported))
}

// TestLogBytesPerMessage is the budget of design §4: under 30 bytes of log for each consumed message,
// lease and ack together, at batch 32.
func TestLogBytesPerMessage(t *testing.T) {
	const batch = 32
	ck := record.PopCk{Topic: 1000, Group: 1000, Until: 1_700_000_060_000, Client: 1000, AttemptID: []byte("7f1a9c52-8a70-4a7e-9c67-2b7c9c1f0e11")}
	var items []record.PopItem
	var acked []record.QueueOffset
	for i := range record.QueueOffset(batch) {
		items = append(items, record.PopItem{Offset: 1<<40 + i, Attempt: 1, Prev: -1})
		acked = append(acked, 1<<40+i)
	}
	size := func(ck record.PopCk, acks ...record.PopAck) float64 {
		n := record.Total(record.PopCkSize(&ck))
		for _, a := range acks {
			n += record.Total(record.PopAckSize(&a))
		}
		return float64(n) / batch
	}
	ack := record.PopAck{Sections: []record.AckSection{{Topic: 1000, Group: 1000, Queue: 100, Offsets: acked}}}
	ck.Sections = []record.PopSection{{Queue: 100, Items: items}}
	require.Less(t, size(ck, ack), 6.0, "consecutive, one ack")

	mixed := ck
	mixed.Sections = []record.PopSection{{Queue: 100, Items: append([]record.PopItem{}, items...)}}
	for i := range mixed.Sections[0].Items {
		mixed.Sections[0].Items[i].Attempt = uint16(i % 2)
	}
	require.LessOrEqual(t, size(mixed)-size(ck), 1.0/4, "skipped ones cost a bit each, rounded to a record's alignment")

	var queues record.PopCk
	queues, queues.Sections = ck, nil
	scattered := record.PopAck{}
	for i := range items {
		queues.Sections = append(queues.Sections, record.PopSection{Queue: record.QueueID(i), Items: items[i : i+1]})
		scattered.Sections = append(scattered.Sections, record.AckSection{Topic: 1000, Group: 1000, Queue: record.QueueID(i), Offsets: acked[i : i+1]})
	}
	require.Less(t, size(queues, scattered), 30.0, "each from another queue")
}

// TestHotPathAllocates nothing: what is written and read for each message.
func TestHotPathAllocates(t *testing.T) {
	m := kinds[0].sample.(record.Msg)
	ck := kinds[1].sample.(record.PopCk)
	ack := kinds[2].sample.(record.PopAck)
	buf := make([]byte, 4096)
	var got record.PopCk
	require.Zero(t, testing.AllocsPerRun(100, func() {
		n := record.MsgSize(&m)
		rec := buf[:record.Total(n)]
		record.PutMsg(rec[record.HeaderSize:record.HeaderSize+n], &m)
		record.Seal(rec, &record.Header{Type: record.TypeMsg, Size: uint32(len(rec)), Tail: uint16(len(rec) - record.HeaderSize - n)})
		r, err := record.Decode(rec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := record.DecodeMsg(r.Body); err != nil {
			t.Fatal(err)
		}
	}), "MSG")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b := buf[:record.PopCkSize(&ck)]
		record.PutPopCk(b, &ck)
		if err := record.DecodePopCk(b, &got); err != nil {
			t.Fatal(err)
		}
		record.PutPopAck(buf[2048:2048+record.PopAckSize(&ack)], &ack)
	}), "POP_CK and POP_ACK")
	require.Equal(t, ck, got)
}

func TestMisuse(t *testing.T) {
	falling := record.PopAck{Sections: []record.AckSection{{Offsets: []record.QueueOffset{5, 4}}}}
	require.Panics(t, func() { record.PopAckSize(&falling) })
	require.Panics(t, func() { record.PutSkip(make([]byte, 3), &record.Skip{}) }, "too short")
	require.Panics(t, func() { record.PutSkip(make([]byte, 99), &record.Skip{}) }, "too long")
	high := record.Trim{Queues: []record.TrimQueue{{First: 5, Held: []record.Held{{Offset: 5}}}}}
	require.Panics(t, func() { record.TrimSize(&high) }, "a held entry that the queue still has")
	many := record.PopAck{Sections: []record.AckSection{{Offsets: make([]record.QueueOffset, record.MaxItems+1)}}}
	require.Panics(t, func() { record.PopAckSize(&many) })
}

// TestUnwrap holds what a MOVE carries against the record that was carried, moved once and twice.
func TestUnwrap(t *testing.T) {
	for _, typ := range []record.Type{record.TypeMsg, record.TypeDead} {
		var first record.Record
		for _, k := range kinds {
			if k.typ == typ {
				r, err := record.Decode(whole(typ, k.encode(k.sample)))
				require.NoError(t, err)
				first = r
			}
		}
		same, err := record.Unwrap(first)
		require.NoError(t, err)
		require.Equal(t, first, same, "a record that was not moved")
		moved := first
		for pos := range record.Pos(2) {
			m := record.Wrap(&moved)
			b := make([]byte, record.MoveSize(&m))
			record.PutMove(b, &m)
			r, err := record.Decode(whole(record.TypeMove, b))
			require.NoError(t, err)
			r.Pos, r.Time = 1<<40+pos*8, 1_800_000_000_000
			moved, err = record.Unwrap(r)
			require.NoError(t, err)
			want := first
			want.CRC, want.Flags = 0, 0
			require.Equal(t, want, moved)
		}
	}
	for typ, kind := range map[record.Type]mqerr.Kind{record.TypePopAck: mqerr.Corrupt, record.TypeMove: mqerr.Corrupt, record.TypePad: mqerr.Corrupt, 0: mqerr.Unsupported, 200: mqerr.Unsupported} {
		m := record.Move{From: 8, Version: 1, Type: typ}
		b := make([]byte, record.MoveSize(&m))
		record.PutMove(b, &m)
		_, err := record.Unwrap(record.Record{Header: record.Header{Type: record.TypeMove}, Body: b})
		require.True(t, mqerr.Is(err, kind), "%v: %v", typ, err)
	}
	_, err := record.Unwrap(record.Record{Header: record.Header{Type: record.TypeMove}, Body: []byte{1}})
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
}
