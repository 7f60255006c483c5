package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Position is one message of a queue, as the log has it.
type Position struct {
	Topic  record.TopicID     `json:"topic"`
	Queue  record.QueueID     `json:"queue"`
	Offset record.QueueOffset `json:"offset"`
	Pos    record.Pos         `json:"pos"`
	Size   uint32             `json:"size"`
	Time   string             `json:"time"`
	ID     string             `json:"id"`
}

// messageIn is the message that a record puts somewhere, nil if it puts none.
func messageIn(r record.Record) (*record.Msg, error) {
	switch r.Type {
	case record.TypeMsg:
		m, err := record.DecodeMsg(r.Body)
		return &m, err
	case record.TypeDead:
		d, err := record.DecodeDead(r.Body)
		return &d.Msg, err
	case record.TypeMove:
		in, err := record.Unwrap(r)
		if err != nil {
			return nil, err
		}
		return messageIn(in)
	}
	return nil, nil
}

// Queue writes the messages of a topic's queues (queue -1: all) from the log, a line each.
func (d *Dir) Queue(w io.Writer, topic record.TopicID, q record.QueueID, asJSON bool) (Tail, error) {
	out := json.NewEncoder(w)
	return d.past(d.log.First(), func(r record.Record) error {
		m, err := messageIn(r)
		if m == nil || err != nil {
			return err
		}
		if topic != 0 && m.Topic != topic || q >= 0 && m.Queue != q {
			return nil
		}
		p := Position{
			Topic: m.Topic, Queue: m.Queue, Offset: m.Offset, Pos: r.Pos, Size: r.Size, Time: time.UnixMilli(r.Time).UTC().Format("2006-01-02T15:04:05.000Z"), ID: string(m.ID),
		}
		if asJSON {
			return out.Encode(p)
		}
		_, err = fmt.Fprintf(w, "topic %d queue %d offset %d: position %d size %d %s %s\n", p.Topic, p.Queue, p.Offset, p.Pos, p.Size, p.Time, p.ID)
		return err
	}, func(commitlog.Past) error { return nil })
}
