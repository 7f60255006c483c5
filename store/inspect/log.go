package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Filter chooses records. Zero fields choose all.
type Filter struct {
	From  record.Pos  // the first position to look at
	To    record.Pos  // the first position to leave out, 0 for none
	Type  record.Type // 0: all
	Topic record.TopicID
	Limit int // records to write, 0 for no bound
}

// Line is one record as the dump shows it.
type Line struct {
	Pos   int64  `json:"pos"`
	Size  uint32 `json:"size"`
	Type  string `json:"type"`
	Epoch uint64 `json:"epoch"`
	Time  string `json:"time"`
	// Detail holds the fields of the type; spans of messages as lengths.
	Detail any `json:"detail,omitempty"`
	topic  record.TopicID
}

// lostLine is a part of the log that cannot be read.
type lostLine struct {
	Lost  commitlog.Hole `json:"lost"`
	Bytes int64          `json:"bytes"`
	Known bool           `json:"known"` // it was noted before
}

var errEnough = errors.New("enough")

// Log writes the chosen records, as a line of text or of JSON each, and tells how the log ended.
func (d *Dir) Log(w io.Writer, f Filter, asJSON bool) (Tail, error) {
	n := 0
	out := json.NewEncoder(w)
	t, err := d.past(d.log.First(), func(r record.Record) error {
		if f.To > 0 && r.Pos >= f.To || f.Limit > 0 && n >= f.Limit {
			return errEnough
		}
		if r.Pos < f.From || f.Type != 0 && r.Type != f.Type {
			return nil
		}
		l := lineOf(r)
		if f.Topic != 0 && l.topic != f.Topic {
			return nil
		}
		n++
		if asJSON {
			return out.Encode(l)
		}
		detail, err := json.Marshal(l.Detail)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%d %s size %d epoch %d %s %s\n", l.Pos, l.Type, l.Size, l.Epoch, l.Time, detail)
		return err
	}, func(p commitlog.Past) error {
		if f.To > 0 && p.From >= f.To || f.Limit > 0 && n >= f.Limit || p.To <= f.From || f.Type != 0 || f.Topic != 0 {
			return nil
		}
		if asJSON {
			return out.Encode(lostLine{Lost: p.Hole, Bytes: p.Bytes(), Known: p.Known})
		}
		_, err := fmt.Fprintf(w, "%d LOST %s (%s)\n", p.From, p.Hole, p.Why)
		return err
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return t, err
}

// message is what the dump shows of a message.
type message struct {
	Topic     record.TopicID     `json:"topic"`
	Queue     record.QueueID     `json:"queue"`
	Offset    record.QueueOffset `json:"offset"`
	MsgType   record.MsgType     `json:"message_type"`
	ID        string             `json:"id"`
	TagHash   uint64             `json:"tag_hash,omitempty"`
	GroupHash uint64             `json:"group_hash,omitempty"`
	DeliverAt int64              `json:"deliver_at,omitempty"`
	User      int                `json:"user_bytes"`
	Sys       int                `json:"sys_bytes"`
	Body      int                `json:"body_bytes"`
}

// dead is a message that moved to another topic.
type dead struct {
	Topic    record.TopicID       `json:"topic"`
	Group    record.GroupID       `json:"group,omitempty"`
	Queue    record.QueueID       `json:"queue"`
	Offset   record.QueueOffset   `json:"offset"`
	Reason   record.DeadReason    `json:"reason"`
	Attempts uint32               `json:"attempts,omitempty"`
	History  []record.DeadAttempt `json:"history,omitempty"`
	Message  message              `json:"message"`
}

// lineOf decodes a record for people. A body that cannot be decoded is shown as its error.
func lineOf(r record.Record) Line {
	l := Line{Pos: int64(r.Pos), Size: r.Size, Type: r.Type.String(), Epoch: uint64(r.Epoch), Time: time.UnixMilli(r.Time).UTC().Format("2006-01-02T15:04:05.000Z")}
	detail, topic, err := detailOf(r)
	l.Detail, l.topic = detail, topic
	if err != nil {
		l.Detail = map[string]string{"undecodable": err.Error()}
	}
	return l
}

func messageLine(m *record.Msg) message {
	return message{
		Topic: m.Topic, Queue: m.Queue, Offset: m.Offset, MsgType: m.Type, ID: string(m.ID), TagHash: m.TagHash, GroupHash: m.GroupHash,
		DeliverAt: m.DeliverAt, User: len(m.User), Sys: len(m.Sys), Body: len(m.Body),
	}
}

func detailOf(r record.Record) (any, record.TopicID, error) {
	switch r.Type {
	case record.TypeMsg:
		m, err := record.DecodeMsg(r.Body)
		return messageLine(&m), m.Topic, err
	case record.TypeDead:
		d, err := record.DecodeDead(r.Body)
		return dead{
			Topic: d.Topic, Group: d.Group, Queue: d.Queue, Offset: d.Offset, Reason: d.Reason, Attempts: d.Attempts, History: d.History,
			Message: messageLine(&d.Msg),
		}, d.Msg.Topic, err
	case record.TypeMove:
		in, err := record.Unwrap(r)
		if err != nil {
			return nil, 0, err
		}
		detail, topic, err := detailOf(in)
		return moved{From: in.Pos, Type: in.Type.String(), Record: detail}, topic, err
	case record.TypeSnapshot:
		p, err := record.DecodeSnapshot(r.Body)
		return chunk{At: p.At, Chunk: p.Chunk, Last: p.Last, View: string(p.View), Data: len(p.Data)}, 0, err
	case record.TypeTrim:
		t, err := record.DecodeTrim(r.Body)
		return plain(t), 0, err
	case record.TypePopCk:
		var c record.PopCk
		err := record.DecodePopCk(r.Body, &c)
		return plain(c), c.Topic, err
	case record.TypePopAck:
		a, err := record.DecodePopAck(r.Body)
		return plain(a), 0, err
	case record.TypePopChange:
		c, err := record.DecodePopChange(r.Body)
		return plain(c), c.Topic, err
	case record.TypeSkip:
		s, err := record.DecodeSkip(r.Body)
		return plain(s), s.Topic, err
	case record.TypeSessionEnd:
		s, err := record.DecodeSessionEnd(r.Body)
		return plain(s), 0, err
	case record.TypeDeliver:
		d, err := record.DecodeDeliver(r.Body)
		return plain(d), d.Topic, err
	case record.TypeTxnEnd:
		e, err := record.DecodeTxnEnd(r.Body)
		return plain(e), e.Topic, err
	case record.TypeTxnCheck:
		c, err := record.DecodeTxnCheck(r.Body)
		return plain(c), 0, err
	case record.TypeRecall:
		c, err := record.DecodeRecall(r.Body)
		return plain(c), c.Topic, err
	case record.TypeOffset:
		o, err := record.DecodeOffsets(r.Body)
		return plain(o), 0, err
	case record.TypeMeta:
		m, err := record.DecodeMeta(r.Body)
		return meta{Kind: m.Kind, Version: m.Version, ID: m.ID, Deleted: m.Deleted, Name: string(m.Name), Value: json.RawMessage(valid(m.Value))}, 0, err
	case record.TypeEpoch:
		e, err := record.DecodeEpochStart(r.Body)
		return epoch{Epoch: e.Epoch, Incarnation: e.Incarnation, Replica: fmt.Sprintf("%x", e.Replica)}, 0, err
	}
	return nil, 0, nil
}

// valid is a JSON value as it is, null for none.
func valid(b []byte) []byte {
	if json.Valid(b) {
		return b
	}
	return []byte("null")
}

// moved is a record that was carried forward.
type moved struct {
	From   record.Pos `json:"from"`
	Type   string     `json:"type"`
	Record any        `json:"record"`
}

// chunk is a part of the base state of the views.
type chunk struct {
	At    record.Pos `json:"at"`
	Chunk uint32     `json:"chunk"`
	Last  bool       `json:"last,omitempty"`
	View  string     `json:"view"`
	Data  int        `json:"data_bytes"`
}

type meta struct {
	Kind    record.MetaKind `json:"kind"`
	Version uint64          `json:"version"`
	ID      uint32          `json:"id"`
	Deleted bool            `json:"deleted,omitempty"`
	Name    string          `json:"name"`
	Value   json.RawMessage `json:"value"`
}

type epoch struct {
	Epoch       record.Epoch `json:"epoch"`
	Incarnation uint64       `json:"incarnation"`
	Replica     string       `json:"replica"`
}
