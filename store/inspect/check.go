package inspect

import (
	"fmt"
	"maps"
	"path/filepath"

	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// Report is what Check found.
type Report struct {
	Path       string     `json:"path"`
	Segments   int        `json:"segments"`
	First      record.Pos `json:"first"`
	End        record.Pos `json:"end"`
	Records    int64      `json:"records"`
	Messages   int64      `json:"messages"`
	Queues     int        `json:"queues"`     // with messages in the log, deleted topics left out
	Checkpoint record.Pos `json:"checkpoint"` // -1: none
	// Torn is what a crash left at the end; the next start cuts it. Not a fault.
	Torn string `json:"torn,omitempty"`
	// Holes are parts of the log that are lost and that somebody chose to go on without. Not a fault.
	Holes []commitlog.Hole `json:"holes,omitempty"`
	// Faults are what is wrong, each with where it is and what to do.
	Faults []string `json:"faults"`
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

// rebuild is what to do about a damaged view.
const rebuild = "delete the queue and checkpoint folders, the next start rebuilds them"

// checker compares the log with the views. It remembers one number for each queue.
type checker struct {
	*Report
	known *queue.Store // as of the checkpoint, nil if there is none to compare with
	next  map[queue.Key]record.QueueOffset
	// atCheckpoint is next as it was at the checkpoint's position.
	atCheckpoint map[queue.Key]record.QueueOffset
	epoch        record.Epoch
	time         int64
	gap          bool // the log does not begin at 0 or has a gap: a queue may be met at any offset
	gaps         bool // records in the middle are damaged: the ends of queues cannot be compared
}

// Check reads the whole log, the checkpoints and the consume queues and compares them. Behind damage it
// goes on with the next segment.
func (d *Dir) Check() (*Report, error) {
	segments, err := d.segments()
	if err != nil {
		return nil, err
	}
	c := checker{
		Report: &Report{Path: d.path, Segments: len(segments), First: d.log.First(), Checkpoint: -1, Faults: []string{}},
		next:   map[queue.Key]record.QueueOffset{}, gap: d.log.First() > 0,
	}
	c.views(d)
	if c.known != nil {
		defer c.known.Close()
	}
	tail, err := d.past(c.First, c.record, func(p commitlog.Past) error {
		if p.Known {
			c.Holes = append(c.Holes, p.Hole)
		} else {
			c.fault("log: %s: %s; bring the file back from a copy or a replica, or see perigee debug repair", p.Hole, p.Why)
		}
		c.gap, c.gaps = true, true
		clear(c.next)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.End, c.Records = tail.End, tail.Records
	if tail.Torn != nil {
		c.Torn = tail.Torn.Error()
	}
	c.finish()
	return c.Report, nil
}

// segments are the first positions of the segments, in order.
func (d *Dir) segments() ([]record.Pos, error) {
	names, err := d.fs.List(filepath.Join(d.path, store.LogDir))
	var all []record.Pos
	for _, n := range names {
		if base, ok := segment.ParseName(n); ok {
			all = append(all, base)
		}
	}
	return all, err
}

// views loads what the newest whole checkpoint says of the queues.
func (c *checker) views(d *Dir) {
	found, damaged, err := d.checkpoints()
	if err != nil {
		c.fault("checkpoints: %v", err)
	}
	for _, f := range damaged {
		c.fault("checkpoint %s: %v; the next start uses an older one", f.Name, f.Err)
	}
	if found == nil {
		return
	}
	c.Checkpoint = found.Pos
	c.known, err = d.queues(found)
	if err != nil {
		c.fault("consume queues: %v; the next start rebuilds them", err)
	}
}

// record checks one record: that it can be decoded, that epoch and time do not go back, and a message's
// place.
func (c *checker) record(r record.Record) error {
	if c.atCheckpoint == nil && r.Pos >= c.Checkpoint {
		c.passCheckpoint()
	}
	if r.Epoch < c.epoch || r.Time < c.time {
		c.fault("record at %d has epoch %d and time %d, one before it has epoch %d and time %d", r.Pos, r.Epoch, r.Time, c.epoch, c.time)
	}
	c.epoch, c.time = r.Epoch, r.Time
	if _, _, err := detailOf(r); err != nil {
		c.fault("%s at %d: %v", r.Type, r.Pos, err)
		return nil
	}
	switch r.Type {
	case record.TypeMsg, record.TypeDead:
		c.Messages++
		m, err := messageIn(r)
		if err == nil && m.Offset >= 0 {
			c.message(&r.Header, m)
		}
		return err
	case record.TypeDeliver:
		d, err := record.DecodeDeliver(r.Body)
		for i := range d.Items {
			c.placed(&r.Header, d.Topic, &d.Items[i])
		}
		return err
	case record.TypeMeta:
		m, err := record.DecodeMeta(r.Body)
		switch {
		case err != nil || !m.Deleted:
		case m.Kind == record.MetaLite:
			delete(c.next, queue.Key{Topic: record.TopicID(m.ID), Queue: record.QueueID(m.Version)})
		case m.Kind == record.MetaTopic:
			maps.DeleteFunc(c.next, func(k queue.Key, _ record.QueueOffset) bool { return uint32(k.Topic) == m.ID })
		}
		return err
	}
	return nil
}

func (c *checker) passCheckpoint() {
	c.atCheckpoint = maps.Clone(c.next)
}

// message checks the place of a message that was stored with one.
func (c *checker) message(h *record.Header, m *record.Msg) {
	c.place(h, queue.Key{Topic: m.Topic, Queue: m.Queue}, m.Offset, queue.Entry{Pos: h.Pos, Size: h.Size, Time: h.Time, TagHash: m.TagHash, GroupHash: m.GroupHash})
}

// placed checks the place that a later record gave a message.
func (c *checker) placed(h *record.Header, id record.TopicID, p *record.Place) {
	if p.Ref >= h.Pos {
		c.fault("%s at %d gives the message at %d a place, which is not before it", h.Type, h.Pos, p.Ref)
	}
	c.place(h, queue.Key{Topic: id, Queue: p.Queue}, p.Offset, queue.Entry{Pos: p.Ref, Size: p.Size, Time: h.Time, TagHash: p.TagHash, GroupHash: p.GroupHash})
}

// place checks the place of a message in its queue as the record at h says it, and what the consume queue
// says of it.
func (c *checker) place(h *record.Header, k queue.Key, off record.QueueOffset, want queue.Entry) {
	next, seen := c.next[k]
	if off != next && (seen || !c.gap) {
		c.fault("message at %d has offset %d in topic %d queue %d, where %d comes next", want.Pos, off, k.Topic, k.Queue, next)
	}
	c.next[k] = off + 1
	if c.known == nil || h.Pos >= c.Checkpoint {
		return
	}
	lo, hi := c.known.Bounds(k)
	if off < lo || off >= hi {
		return // see finish: the bounds are compared there, when it is known which topics were deleted
	}
	e, err := c.known.At(k, off)
	switch {
	case err != nil:
		c.fault("consume queue of topic %d queue %d, offset %d: %v; %s", k.Topic, k.Queue, off, err, rebuild)
	case e != want:
		c.fault("consume queue of topic %d queue %d, offset %d says %+v, the log has %d bytes of %d at %d; %s",
			k.Topic, k.Queue, off, e, want.Size, want.Time, want.Pos, rebuild)
	}
}

// finish compares the ends of the queues at the checkpoint's position.
func (c *checker) finish() {
	c.Queues = len(c.next)
	if c.Checkpoint > c.End {
		c.fault("checkpoint at %d stands for more than the log, which ends at %d; %s", c.Checkpoint, c.End, rebuild)
		return
	}
	if c.atCheckpoint == nil {
		c.passCheckpoint()
	}
	if c.known == nil || c.gaps {
		return
	}
	for _, k := range c.known.Keys() {
		lo, hi := c.known.Bounds(k)
		if n, ok := c.atCheckpoint[k]; n != hi && (ok || hi > lo) {
			c.fault("consume queue of topic %d queue %d ends at offset %d, in the log it ends at %d; %s", k.Topic, k.Queue, hi, n, rebuild)
		}
		delete(c.atCheckpoint, k)
	}
	for k, n := range c.atCheckpoint {
		c.fault("consume queue of topic %d queue %d is missing, in the log it ends at %d; %s", k.Topic, k.Queue, n, rebuild)
	}
}
