package record_test

import (
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/store/record"
)

// kind is what the tests need to know of one type of record.
type kind struct {
	typ    record.Type
	sample any                // for the golden bytes
	draw   func(*rapid.T) any // any value that may be written
	encode func(any) []byte   // exactly its size
	decode func([]byte) (any, error)
}

func kindOf[T any](typ record.Type, sample T, draw func(*rapid.T) T, size func(*T) int, put func([]byte, *T), decode func([]byte) (T, error)) kind {
	return kind{
		typ: typ, sample: sample,
		draw: func(t *rapid.T) any { return draw(t) },
		encode: func(v any) []byte {
			x := v.(T)
			b := make([]byte, size(&x))
			put(b, &x)
			return b
		},
		decode: func(b []byte) (any, error) { return decode(b) },
	}
}

func decodePopCk(b []byte) (c record.PopCk, err error) {
	err = record.DecodePopCk(b, &c)
	return c, err
}

var kinds = []kind{
	kindOf(record.TypeMsg, record.Msg{
		Topic: 7, Queue: 3, Offset: 1 << 33, Type: record.MsgFIFO, TagHash: 0x1122334455667788, GroupHash: 0x99aabbccddeeff00, DeliverAt: 1_700_000_000_000,
		Digest: [16]byte{1, 2, 3, 15: 16}, ID: []byte("0156F7E71C361B21BC024CCDBE00000000"), User: []byte("user"), Sys: []byte("sys"), Body: []byte("body"),
	}, drawMsg, record.MsgSize, record.PutMsg, record.DecodeMsg),
	kindOf(record.TypePopCk, record.PopCk{
		Topic: 7, Group: 300, Until: 1_700_000_060_000, Session: true, Client: 5, ClientName: []byte("host@1"), AttemptID: []byte("a-1"),
		Sections: []record.PopSection{
			{Queue: 0, Items: []record.PopItem{{Offset: 3, Attempt: 2, Prev: 4096}, {Offset: 9, Attempt: 3, Prev: 2048}, {Offset: 10, Attempt: 1, Prev: -1}, {Offset: 11, Attempt: 1, Prev: -1}}},
			{Queue: 2, Items: []record.PopItem{{Offset: 100, Attempt: 1, Prev: -1}, {Offset: 101, Attempt: 0, Prev: -1}, {Offset: 200, Attempt: 1, Prev: -1}}},
		},
	}, drawPopCk, record.PopCkSize, record.PutPopCk, decodePopCk),
	kindOf(record.TypePopAck, record.PopAck{Sections: []record.AckSection{
		{Topic: 7, Group: 300, Queue: 2, Offsets: []record.QueueOffset{5, 6, 7, 8, 20, 1000, 1001}}, {Topic: 8, Group: 1, Queue: 0, Offsets: []record.QueueOffset{0}},
	}}, drawPopAck, record.PopAckSize, record.PutPopAck, record.DecodePopAck),
	kindOf(record.TypePopChange, record.PopChange{Topic: 7, Group: 300, Until: 1_700_000_060_000, Changes: []record.Change{
		{Queue: 2, Offset: 5, Lease: 4096}, {Queue: 0, Offset: 3, Lease: 5000, Keep: true},
	}}, drawPopChange, record.PopChangeSize, record.PutPopChange, record.DecodePopChange),
	kindOf(record.TypeDeliver, record.Deliver{Topic: 7, Items: samplePlaces}, func(t *rapid.T) record.Deliver {
		return record.Deliver{Topic: draw[record.TopicID](t), Items: list(t, drawPlace)}
	}, record.DeliverSize, record.PutDeliver, record.DecodeDeliver),
	kindOf(record.TypeTxnEnd, record.TxnEnd{Topic: 7, Source: record.TxnByCheck, Committed: []record.TxnPlace{{Queue: 1, Offset: 5, Half: 4096}, {Queue: 0, Offset: 1 << 33, Half: 1 << 40}}, RolledBack: []record.Pos{8192, 4096}}, func(t *rapid.T) record.TxnEnd {
		return record.TxnEnd{Topic: draw[record.TopicID](t), Source: draw[record.TxnSource](t), Committed: list(t, drawTxnPlace), RolledBack: list(t, drawPos)}
	}, record.TxnEndSize, record.PutTxnEnd, record.DecodeTxnEnd),
	kindOf(record.TypeTxnCheck, record.TxnCheck{Topic: 7, Items: []record.TxnChecked{{Half: 4096, Checks: 1, Next: 1_700_000_000_000}, {Half: 80, Checks: 15, Next: 9}}}, func(t *rapid.T) record.TxnCheck {
		return record.TxnCheck{Topic: draw[record.TopicID](t), Items: list(t, func(t *rapid.T) record.TxnChecked {
			return record.TxnChecked{Half: drawPos(t), Checks: draw[uint32](t), Next: drawTime(t)}
		})}
	}, record.TxnCheckSize, record.PutTxnCheck, record.DecodeTxnCheck),
	kindOf(record.TypeRecall, record.Recall{Topic: 7, Items: []record.Recalled{{Ref: 8, DeliverAt: 1_700_000_000_000}, {Ref: 4096, DeliverAt: 9}}}, func(t *rapid.T) record.Recall {
		return record.Recall{Topic: draw[record.TopicID](t), Items: list(t, func(t *rapid.T) record.Recalled { return record.Recalled{Ref: drawPos(t), DeliverAt: drawTime(t)} })}
	}, record.RecallSize, record.PutRecall, record.DecodeRecall),
	kindOf(record.TypeDead, record.Dead{
		Topic: 7, Group: 300, Queue: 1, Offset: 77, Reason: record.DeadMaxAttempts, Attempts: 16,
		History: []record.DeadAttempt{{Lease: 4096, Time: 1_700_000_000_000}, {Lease: 9000, Time: 1_700_000_010_000}},
		Msg:     record.Msg{Topic: 9, Offset: 4, Type: record.MsgNormal, ID: []byte("id"), Body: []byte("body")},
	}, func(t *rapid.T) record.Dead {
		return record.Dead{
			Topic: draw[record.TopicID](t), Group: draw[record.GroupID](t), Queue: drawQueue(t), Offset: drawOffset(t), Reason: draw[record.DeadReason](t), Attempts: draw[uint32](t),
			History: list(t, func(t *rapid.T) record.DeadAttempt { return record.DeadAttempt{Lease: drawPos(t), Time: drawTime(t)} }), Msg: drawMsg(t),
		}
	}, record.DeadSize, record.PutDead, record.DecodeDead),
	kindOf(record.TypeOffset, record.Offsets{Items: []record.OffsetItem{{Kind: record.OffsetPull, Topic: 7, Group: 300, Queue: 2, Offset: 1000}, {Kind: record.OffsetReset, Topic: 7, Group: 1}}}, func(t *rapid.T) record.Offsets {
		return record.Offsets{Items: list(t, func(t *rapid.T) record.OffsetItem {
			return record.OffsetItem{Kind: draw[record.OffsetKind](t), Topic: draw[record.TopicID](t), Group: draw[record.GroupID](t), Queue: drawQueue(t), Offset: drawOffset(t)}
		})}
	}, record.OffsetsSize, record.PutOffsets, record.DecodeOffsets),
	kindOf(record.TypeMeta, record.Meta{Kind: record.MetaTopic, Version: 99, ID: 7, Name: []byte("orders"), Value: []byte(`{"queues":8}`)}, func(t *rapid.T) record.Meta {
		return record.Meta{Kind: draw[record.MetaKind](t), Version: draw[uint64](t), ID: draw[uint32](t), Deleted: draw[bool](t), Name: drawBytes(t), Value: drawBytes(t)}
	}, record.MetaSize, record.PutMeta, record.DecodeMeta),
	kindOf(record.TypeEpoch, record.EpochStart{Epoch: 3, Incarnation: 12, Replica: [16]byte{1, 15: 2}, Version: 5, Sync: [][16]byte{{3}, {4}}}, func(t *rapid.T) record.EpochStart {
		id := func(t *rapid.T) (id [16]byte) {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
			return id
		}
		return record.EpochStart{Epoch: draw[record.Epoch](t), Incarnation: draw[uint64](t), Replica: id(t), Version: draw[uint64](t), Sync: list(t, id)}
	}, record.EpochStartSize, record.PutEpochStart, record.DecodeEpochStart),
	kindOf(record.TypeMove, record.Move{From: 4096, Version: 1, Type: record.TypeMsg, Epoch: 2, Time: 1_700_000_000_000, Body: []byte("body")}, func(t *rapid.T) record.Move {
		return record.Move{From: drawPos(t), Version: draw[uint8](t), Type: draw[record.Type](t), Epoch: draw[record.Epoch](t), Time: drawTime(t), Body: drawBytes(t)}
	}, record.MoveSize, record.PutMove, record.DecodeMove),
	kindOf(record.TypeSnapshot, record.Snapshot{At: 1 << 40, Chunk: 3, Last: true, View: []byte("pop"), Data: []byte("data")}, func(t *rapid.T) record.Snapshot {
		return record.Snapshot{At: drawPos(t), Chunk: draw[uint32](t), Last: draw[bool](t), View: drawBytes(t), Data: drawBytes(t)}
	}, record.SnapshotSize, record.PutSnapshot, record.DecodeSnapshot),
	kindOf(record.TypeSessionEnd, record.SessionEnd{Client: 5, Until: 1_700_000_000_000}, func(t *rapid.T) record.SessionEnd {
		return record.SessionEnd{Client: draw[record.ClientNum](t), Until: drawTime(t)}
	}, record.SessionEndSize, record.PutSessionEnd, record.DecodeSessionEnd),
	kindOf(record.TypeSkip, record.Skip{Topic: 7, Group: 300, Queue: 2, From: 1000, To: 11000}, func(t *rapid.T) record.Skip {
		from := drawOffset(t)
		return record.Skip{Topic: draw[record.TopicID](t), Group: draw[record.GroupID](t), Queue: drawQueue(t), From: from, To: from + drawOffset(t)/2}
	}, record.SkipSize, record.PutSkip, record.DecodeSkip),
	kindOf(record.TypePopCk, record.PopCk{
		Topic: 7, Group: 300, Until: 1_700_000_060_000, Client: 5, AttemptID: []byte("a-2"), Ordered: true,
		Sections: []record.PopSection{
			{Queue: 0, Items: []record.PopItem{{Offset: 3, Attempt: 2, Prev: 4096}, {Offset: 10, Attempt: 1, Prev: -1}}, Next: 400},
			{Queue: 1, Items: []record.PopItem{{Offset: 5, Attempt: 1, Prev: -1}}, Next: 6},
			{Queue: 2, Next: 1000},
		},
	}, drawPopCk, record.PopCkSize, record.PutPopCk, decodePopCk),
	kindOf(record.TypeTrim, record.Trim{At: 1 << 31, Time: 1_700_000_000_000, Last: true, Queues: []record.TrimQueue{
		{Topic: 7, Queue: 2, First: 1000, Held: []record.Held{
			{Offset: 5, Pos: 4096, Size: 1200, Time: 1_690_000_000_000, TagHash: 1, GroupHash: 2}, {Offset: 999, Pos: 80, Size: 96, Time: 1_699_000_000_000},
		}},
		{Topic: 8, Queue: 0, First: 3},
	}}, drawTrim, record.TrimSize, record.PutTrim, record.DecodeTrim),
}

var samplePlaces = []record.Place{
	{Queue: 2, Offset: 500, Ref: 1 << 30, Size: 1200, TagHash: 1, GroupHash: 2}, {Queue: 3, Offset: 5, Ref: 1<<30 + 1200, Size: 96},
}

func draw[T any](t *rapid.T) T { return rapid.Make[T]().Draw(t, "v") }

func list[T any](t *rapid.T, one func(*rapid.T) T) []T {
	var all []T
	for range rapid.IntRange(0, 5).Draw(t, "n") {
		all = append(all, one(t))
	}
	return all
}

func drawBytes(t *rapid.T) []byte {
	if b := rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"); len(b) > 0 {
		return b
	}
	return nil
}

// Offsets and positions up to 2^61, so that sums stay numbers.
func drawNum(t *rapid.T) int64                 { return rapid.Int64Range(0, 1<<61).Draw(t, "num") }
func drawOffset(t *rapid.T) record.QueueOffset { return record.QueueOffset(drawNum(t)) }
func drawPos(t *rapid.T) record.Pos            { return record.Pos(drawNum(t)) }
func drawTime(t *rapid.T) int64                { return drawNum(t) }
func drawQueue(t *rapid.T) record.QueueID {
	return record.QueueID(rapid.Int32Range(0, 1<<31-1).Draw(t, "queue"))
}

func drawMsg(t *rapid.T) record.Msg {
	m := record.Msg{
		Topic: draw[record.TopicID](t), Queue: drawQueue(t), Offset: record.QueueOffset(rapid.Int64Range(-1, 1<<61).Draw(t, "offset")), Type: draw[record.MsgType](t),
		TagHash: draw[uint64](t), GroupHash: draw[uint64](t), DeliverAt: drawTime(t), ID: drawBytes(t), User: drawBytes(t), Sys: drawBytes(t), Body: drawBytes(t),
	}
	copy(m.Digest[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "digest"))
	return m
}

func drawTxnPlace(t *rapid.T) record.TxnPlace {
	return record.TxnPlace{Queue: drawQueue(t), Offset: drawOffset(t), Half: drawPos(t)}
}

func drawPlace(t *rapid.T) record.Place {
	return record.Place{Queue: drawQueue(t), Offset: drawOffset(t), Ref: drawPos(t), Size: rapid.Uint32Range(0, 1<<28).Draw(t, "size") * 8, TagHash: draw[uint64](t), GroupHash: draw[uint64](t)}
}

// drawOffsets rise, some by one and some by more.
func drawOffsets(t *rapid.T) (offsets []record.QueueOffset) {
	next := record.QueueOffset(rapid.Int64Range(0, 1<<40).Draw(t, "first"))
	for range rapid.IntRange(0, 40).Draw(t, "n") {
		if rapid.IntRange(0, 3).Draw(t, "jump") == 0 {
			next += record.QueueOffset(rapid.Int64Range(0, 1<<20).Draw(t, "gap"))
		}
		offsets = append(offsets, next)
		next++
	}
	return offsets
}

func drawPopCk(t *rapid.T) record.PopCk {
	c := record.PopCk{
		Topic: draw[record.TopicID](t), Group: draw[record.GroupID](t), Until: drawTime(t), Session: draw[bool](t), Client: draw[record.ClientNum](t),
		ClientName: drawBytes(t), AttemptID: drawBytes(t), Ordered: draw[bool](t),
	}
	c.Sections = list(t, func(t *rapid.T) record.PopSection {
		sec := record.PopSection{Queue: drawQueue(t)}
		for _, off := range drawOffsets(t) {
			it := record.PopItem{Offset: off, Attempt: 1, Prev: -1}
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				it.Attempt = 0
			case 1:
				it.Attempt, it.Prev = draw[uint16](t), drawPos(t)
			}
			sec.Items = append(sec.Items, it)
		}
		if c.Ordered {
			if sec.Next = drawOffset(t) / 2; len(sec.Items) > 0 {
				sec.Next += sec.Items[len(sec.Items)-1].Offset + 1
			}
		}
		return sec
	})
	return c
}

func drawPopAck(t *rapid.T) record.PopAck {
	return record.PopAck{Sections: list(t, func(t *rapid.T) record.AckSection {
		return record.AckSection{Topic: draw[record.TopicID](t), Group: draw[record.GroupID](t), Queue: drawQueue(t), Offsets: drawOffsets(t)}
	})}
}

func drawPopChange(t *rapid.T) record.PopChange {
	return record.PopChange{Topic: draw[record.TopicID](t), Group: draw[record.GroupID](t), Until: drawTime(t), Changes: list(t, func(t *rapid.T) record.Change {
		return record.Change{Queue: drawQueue(t), Offset: drawOffset(t), Lease: drawPos(t), Keep: draw[bool](t)}
	})}
}

func drawTrim(t *rapid.T) record.Trim {
	return record.Trim{At: drawPos(t), Time: drawTime(t), Last: draw[bool](t), Queues: list(t, func(t *rapid.T) record.TrimQueue {
		q := record.TrimQueue{Topic: draw[record.TopicID](t), Queue: drawQueue(t)}
		for _, off := range drawOffsets(t) {
			q.Held = append(q.Held, record.Held{
				Offset: off, Pos: drawPos(t), Size: rapid.Uint32Range(0, 1<<28).Draw(t, "size") * 8, Time: drawTime(t), TagHash: draw[uint64](t), GroupHash: draw[uint64](t),
			})
			q.First = off + 1
		}
		q.First += drawOffset(t) / 2
		return q
	})}
}
