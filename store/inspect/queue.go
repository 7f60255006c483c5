package inspect

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/perigee-mq/perigee/store/queue"
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

// Queue writes the messages of a topic's queues (queue -1: all) from the log, a line each.
func (d *Dir) Queue(w io.Writer, topic record.TopicID, q record.QueueID, asJSON bool) (Tail, error) {
	out := json.NewEncoder(w)
	return d.scan(d.log.First(), func(r record.Record) error {
		if r.Type != record.TypeMsg {
			return nil
		}
		m, err := record.DecodeMsg(r.Body)
		if err != nil {
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
	})
}

// Report is what Check found.
type Report struct {
	Path       string     `json:"path"`
	First      record.Pos `json:"first"`
	End        record.Pos `json:"end"`
	Records    int64      `json:"records"`
	Messages   int64      `json:"messages"`
	Queues     int        `json:"queues"`
	Checkpoint record.Pos `json:"checkpoint"` // -1: none
	// Torn is what a crash left at the end; the next start cuts it. Not a fault.
	Torn string `json:"torn,omitempty"`
	// Faults are what is wrong, each with where it is and what to do.
	Faults []string `json:"faults"`
}

// Check reads the whole log, the checkpoints and the consume queues and compares them.
func (d *Dir) Check() (*Report, error) {
	r := &Report{Path: d.path, First: d.log.First(), Checkpoint: -1, Faults: []string{}}
	c, damaged, err := d.checkpoints()
	if err != nil {
		r.fault("checkpoints: %v", err)
	}
	for _, f := range damaged {
		r.fault("checkpoint %s: %v; the next start uses an older one", f.Name, f.Err)
	}
	var known *queue.Store
	if c != nil {
		r.Checkpoint = c.Pos
		if known, err = d.queues(c); err != nil {
			r.fault("consume queues: %v; the next start rebuilds them", err)
		} else {
			defer known.Close()
		}
	}
	next := map[queue.Key]record.QueueOffset{}
	tail, err := d.scan(d.log.First(), func(rec record.Record) error {
		if rec.Type == record.TypeMsg {
			r.message(rec, next, known)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.End, r.Records, r.Queues = tail.End, tail.Records, len(next)
	if tail.Damage != nil {
		r.fault("log: %v; records that were promised are damaged: bring the file back from a copy or a replica", tail.Damage)
	}
	if tail.Torn != nil {
		r.Torn = tail.Torn.Error()
	}
	if c != nil && c.Pos > r.End {
		r.fault("checkpoint at %d stands for more than the log, which ends at %d", c.Pos, r.End)
	}
	return r, nil
}

// faultsMax bounds the list: what is broken in a thousand places needs no thousand lines.
const faultsMax = 50

func (r *Report) fault(format string, args ...any) {
	switch len(r.Faults) {
	case faultsMax:
		r.Faults = append(r.Faults, "and more")
	case faultsMax + 1:
	default:
		r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
	}
}

// message checks one message: its place in the queue, and what the consume queue says of it.
func (r *Report) message(rec record.Record, next map[queue.Key]record.QueueOffset, known *queue.Store) {
	m, err := record.DecodeMsg(rec.Body)
	if err != nil {
		r.fault("message at %d: %v", rec.Pos, err)
		return
	}
	r.Messages++
	k := queue.Key{Topic: m.Topic, Queue: m.Queue}
	if want, seen := next[k]; seen && m.Offset != want {
		r.fault("message at %d has offset %d in topic %d queue %d, the one before has %d", rec.Pos, m.Offset, k.Topic, k.Queue, want-1)
	}
	next[k] = m.Offset + 1
	if known == nil {
		return
	}
	if lo, hi := known.Bounds(k); m.Offset < lo || m.Offset >= hi {
		return // newer than the checkpoint, or of a topic that was deleted
	}
	e, err := known.At(k, m.Offset)
	switch {
	case err != nil:
		r.fault("consume queue of topic %d queue %d, offset %d: %v; delete the queue and checkpoint folders, the next start rebuilds them", k.Topic, k.Queue, m.Offset, err)
	case e.Pos != rec.Pos || e.Size != rec.Size || e.TagHash != m.TagHash || e.GroupHash != m.GroupHash || e.Time != rec.Time:
		r.fault("consume queue of topic %d queue %d, offset %d names position %d, the log has the message at %d; delete the queue and checkpoint folders, the next start rebuilds them",
			k.Topic, k.Queue, m.Offset, e.Pos, rec.Pos)
	}
}
