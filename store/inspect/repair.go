package inspect

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Plan is what a repair would do: note the parts of the log that cannot be read, so that starts go on
// without them.
type Plan struct {
	Path  string     `json:"path"`
	First record.Pos `json:"first"`
	End   record.Pos `json:"end"`
	// Lost are the parts that are lost, those included that were noted before.
	Lost []Loss `json:"lost"`
	// Topics are the names of the topics that the log still tells, by id.
	Topics map[record.TopicID]string `json:"topics"`
	holes  []commitlog.Hole
}

// Loss is one part of the log that is lost, and what is known of what was in it.
type Loss struct {
	commitlog.Hole
	Bytes int64 `json:"bytes"`
	Known bool  `json:"known"` // it was noted before
	// Records counts, by type, the records whose headers are still whole; UnknownBytes is the rest: nothing tells
	// how many records of what type they were.
	Records      map[string]int `json:"records,omitempty"`
	UnknownBytes int64          `json:"unknown_bytes"`
	// Messages are queue offsets whose messages, or whose places, are lost. Unknown says what cannot be told.
	Messages []Span   `json:"messages,omitempty"`
	Unknown  []string `json:"unknown"`
}

// Span is offsets [From, To) of a queue.
type Span struct {
	Topic record.TopicID     `json:"topic"`
	Queue record.QueueID     `json:"queue"`
	From  record.QueueOffset `json:"from"`
	To    record.QueueOffset `json:"to"`
}

// New tells whether there is something that was not noted before.
func (p *Plan) New() bool { return len(p.holes) > 0 }

// Repair finds out what is lost and changes nothing. progress, which may be nil, is told positions of the log
// as they are read.
func (d *Dir) Repair(progress func(record.Pos)) (*Plan, error) {
	p := &Plan{Path: d.path, First: d.log.First(), Lost: []Loss{}, Topics: map[record.TopicID]string{}}
	next := map[queue.Key]record.QueueOffset{}
	met := false // damage: a queue that was not seen before may have lost what was in it
	place := func(k queue.Key, off record.QueueOffset) {
		n, seen := next[k]
		if met && off > n && (seen || p.First == 0) {
			l := &p.Lost[len(p.Lost)-1]
			l.Messages = append(l.Messages, Span{k.Topic, k.Queue, n, off})
		}
		next[k] = max(n, off+1)
	}
	tail, err := d.past(p.First, func(r record.Record) error {
		if progress != nil {
			progress(r.Pos)
		}
		return places(&r, place, p.Topics)
	}, func(h commitlog.Past) error {
		met = true
		l := Loss{Hole: h.Hole, Bytes: h.Bytes(), Known: h.Known, Records: map[string]int{}}
		if err := d.headers(&l); err != nil {
			return err
		}
		if !h.Known {
			p.holes = append(p.holes, h.Hole)
		}
		p.Lost = append(p.Lost, l)
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.End = tail.End
	d.entriesIn(p)
	for i := range p.Lost {
		p.Lost[i].finish()
	}
	return p, nil
}

// places tells of the places that a record gives, and learns names of topics.
func places(r *record.Record, place func(queue.Key, record.QueueOffset), topics map[record.TopicID]string) error {
	switch r.Type {
	case record.TypeMsg, record.TypeDead:
		m, err := messageIn(*r)
		if err == nil && m.Offset >= 0 {
			place(queue.Key{Topic: m.Topic, Queue: m.Queue}, m.Offset)
		}
		return err
	case record.TypeDeliver:
		d, err := record.DecodeDeliver(r.Body)
		for i := range d.Items {
			place(queue.Key{Topic: d.Topic, Queue: d.Items[i].Queue}, d.Items[i].Offset)
		}
		return err
	case record.TypeTxnEnd:
		e, err := record.DecodeTxnEnd(r.Body)
		for i := range e.Committed {
			place(queue.Key{Topic: e.Topic, Queue: e.Committed[i].Queue}, e.Committed[i].Offset)
		}
		return err
	case record.TypeMeta:
		m, err := record.DecodeMeta(r.Body)
		if err == nil && m.Kind == record.MetaTopic && !m.Deleted {
			topics[record.TopicID(m.ID)] = string(m.Name)
		}
		return err
	}
	return nil
}

// headers counts the records of a loss whose headers are still there: they name their own position.
func (d *Dir) headers(l *Loss) error {
	var head [record.HeaderSize]byte
	for pos := l.From; pos < l.To; {
		h, ok, err := d.log.HeaderAt(pos, head[:])
		if err != nil {
			return err
		}
		if ok && h.End() <= l.To && h.Supported() == nil {
			l.Records[h.Type.String()]++
			pos = h.End()
			continue
		}
		pos += record.Align
		l.UnknownBytes += record.Align
	}
	return nil
}

// entriesIn finds the messages whose records are in a loss, as the queues of the newest checkpoint know them.
func (d *Dir) entriesIn(p *Plan) {
	c, _, err := d.checkpoints()
	why := "there is no checkpoint to tell which messages were stored in it"
	if err == nil && c != nil {
		q, err := d.queues(c)
		if err == nil {
			defer q.Close()
			for i := range p.Lost {
				l := &p.Lost[i]
				if l.From < c.Pos {
					err = l.entries(q)
				}
				if l.To > c.Pos {
					l.Unknown = append(l.Unknown, fmt.Sprintf("what was stored behind the newest checkpoint (position %d)", c.Pos))
				}
				if err != nil {
					l.Unknown = append(l.Unknown, err.Error())
				}
			}
			return
		}
		why = fmt.Sprintf("the consume queues cannot be read (%v)", err)
	}
	for i := range p.Lost {
		p.Lost[i].Unknown = append(p.Lost[i].Unknown, why)
	}
}

func (l *Loss) entries(q *queue.Store) error {
	for _, k := range q.Keys() {
		lo, hi := q.Bounds(k)
		for off := lo; off < hi; off++ {
			e, err := q.At(k, off)
			if err != nil {
				return err
			}
			if e.Pos >= l.From && e.Pos < l.To {
				l.Messages = append(l.Messages, Span{k.Topic, k.Queue, off, off + 1})
			}
		}
	}
	return nil
}

// finish joins spans and says what no file tells.
func (l *Loss) finish() {
	slices.SortFunc(l.Messages, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.From, b.From))
	})
	out := l.Messages[:0]
	for _, s := range l.Messages {
		if n := len(out); n > 0 && out[n-1].Topic == s.Topic && out[n-1].Queue == s.Queue && s.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	l.Messages = out
	l.Unknown = append(l.Unknown, "leases, acks, verdicts and positions in it: what they ended comes again")
}

// Apply notes what the plan has found, durably, and keeps what is left of the bytes beside the log.
func (d *Dir) Apply(p *Plan) error { return d.log.Note(p.holes...) }

// Write prints a plan.
func (p *Plan) Write(w io.Writer) error {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	say("%s: log from position %d to %d", p.Path, p.First, p.End)
	for i := range p.Lost {
		l := &p.Lost[i]
		say("")
		if l.Known {
			say("noted before: %s", l.Hole)
		} else {
			say("lost: %s", l.Hole)
		}
		say("  instead of a record: %s", l.Why)
		for _, t := range slices.Sorted(maps.Keys(l.Records)) {
			say("  records of type %s, by their headers: %d", t, l.Records[t])
		}
		if l.UnknownBytes > 0 {
			say("  bytes of which no header tells what they were: %d", l.UnknownBytes)
		}
		for _, s := range l.Messages {
			name := p.Topics[s.Topic]
			if name == "" {
				name = "name unknown"
			}
			say("  messages of topic %d (%s) queue %d: offsets %d to %d", s.Topic, name, s.Queue, s.From, s.To-1)
		}
		for _, u := range l.Unknown {
			say("  unknown: %s", u)
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
