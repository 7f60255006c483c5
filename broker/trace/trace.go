// Package trace tells the life of one message from the records of the log: stored, due, leased to whom and
// until when, acked, dead. It is a pure function of the records from the message's own on; nothing is kept
// for it while messages flow.
package trace

import (
	"encoding/json"
	"fmt"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// What happened to a message.
const (
	Stored     = "stored"
	Delivered  = "delivered" // a delayed message became visible
	Committed  = "committed" // a half message became visible
	RolledBack = "rolled back"
	Checked    = "checked" // its producer was asked for the verdict
	Recalled   = "recalled"
	Leased     = "leased"
	Changed    = "changed" // the lease has another end
	Nacked     = "nacked"  // the lease ends at once
	Acked      = "acked"
	Filtered   = "filtered"  // the group's filter let it pass
	Dead       = "dead"      // moved to the dead letters of the group
	Reset      = "reset"     // the group was moved
	Redriven   = "redriven"  // a dead letter, stored again elsewhere
	Ended      = "ended"     // the session of the client that holds it
	Forgotten  = "forgotten" // what was recorded before this is deleted
	Missed     = "missed"    // a part of the log that is lost or damaged: what it said is not known
)

// Event is one thing that happened to a message. What does not apply is zero.
type Event struct {
	Pos     record.Pos // of the record that says it
	Time    int64      // of that record, ms since 1970
	What    string
	Group   record.GroupID
	Client  string           // id of the client, or Unnamed of its number
	Unnamed record.ClientNum // not 0: the client's number, which an older record defines
	Attempt uint16
	Until   int64 // end of the lease, ms since 1970
	Text    string
}

// Tracer follows one message through the log. It can be encoded between two records, and goes on as it was.
// Its fields are exported for that alone.
type Tracer struct {
	Topic  record.TopicID     `json:"topic"`
	Pos    record.Pos         `json:"pos"` // of the message's record
	Next   record.Pos         `json:"next"`
	Time   int64              `json:"time,omitempty"` // of the record before Next, ms since 1970
	Queue  record.QueueID     `json:"queue"`
	Offset record.QueueOffset `json:"offset"` // -1: no place so far
	Over   bool               `json:"over,omitempty"`
	// Clients are the client ids that the records since Pos have defined.
	Clients map[record.ClientNum]string `json:"clients,omitempty"`
	// Held are the latest leases by group.
	Held map[record.GroupID]Lease `json:"held,omitempty"`
	// Name returns the name of a topic, "" if it is not known. nil knows none.
	Name func(record.TopicID) string `json:"-"`

	ck record.PopCk // memory
}

// Lease is the latest lease of the message for a group.
type Lease struct {
	Pos     record.Pos       `json:"pos"`
	Client  record.ClientNum `json:"client"`
	Name    string           `json:"name,omitempty"` // of the client, "" if it is not known
	Attempt uint16           `json:"attempt"`
	Session bool             `json:"session,omitempty"`
}

// New returns a tracer of the message of a topic whose record is at pos.
func New(topic record.TopicID, pos record.Pos) *Tracer {
	return &Tracer{Topic: topic, Pos: pos, Next: pos, Offset: -1, Clients: map[record.ClientNum]string{}, Held: map[record.GroupID]Lease{}}
}

// Forget appends to out that the log begins at first, with a record of time at: retention has deleted what was
// recorded before.
func (t *Tracer) Forget(out []Event, first record.Pos, at int64) []Event {
	t.Next = first
	return append(out, Event{Pos: first, Time: at, What: Forgotten, Text: "retention has deleted what was recorded before"})
}

// Missed appends to out that the part of the log from one position to another cannot be read.
func (t *Tracer) Missed(out []Event, from, to record.Pos) []Event {
	t.Next = to
	return append(out, Event{Pos: from, Time: t.Time, What: Missed, Text: fmt.Sprintf("%d bytes of the log are lost or damaged: what they said is not known", to-from)})
}

// Placed says where the message is, for one whose place was recorded in a part of the log that is deleted.
func (t *Tracer) Placed(q record.QueueID, off record.QueueOffset) {
	if t.Offset < 0 {
		t.Queue, t.Offset = q, off
	}
}

// Encode is the tracer for Decode.
func (t *Tracer) Encode() ([]byte, error) { return json.Marshal(t) }

// Decode returns an encoded tracer of a topic's message. What is none is Invalid.
func Decode(b []byte, topic record.TopicID, pos record.Pos) (*Tracer, error) {
	t := New(topic, pos)
	if err := json.Unmarshal(b, t); err != nil || t.Topic != topic || t.Pos != pos || t.Next < pos || t.Next%record.Align != 0 || t.Clients == nil || t.Held == nil {
		return nil, mqerr.New(mqerr.Invalid, "the state of the trace is not one of this message")
	}
	return t, nil
}

// Apply appends to out what a record says about the message. Records come in log order, from Next on.
func (t *Tracer) Apply(out []Event, r *record.Record) ([]Event, error) {
	n := len(out)
	out, err := t.apply(out, r)
	if err != nil {
		return out, err
	}
	for i := range out[n:] {
		e := &out[n+i]
		e.Pos, e.Time = r.Pos, r.Time
	}
	t.Next, t.Time = r.End(), r.Time
	return out, nil
}

func (t *Tracer) apply(out []Event, r *record.Record) ([]Event, error) {
	switch r.Type {
	case record.TypeMsg:
		if r.Pos != t.Pos {
			return out, nil
		}
		m, err := record.DecodeMsg(r.Body)
		return t.stored(out, &m, ""), err
	case record.TypeDead:
		return t.dead(out, r)
	case record.TypeDeliver:
		d, err := record.DecodeDeliver(r.Body)
		if d.Topic == t.Topic {
			out = t.placed(out, d.Items, Delivered, "")
		}
		return out, err
	case record.TypeTxnEnd:
		e, err := record.DecodeTxnEnd(r.Body)
		if e.Topic == t.Topic {
			out = t.verdict(out, &e)
		}
		return out, err
	case record.TypeTxnCheck:
		c, err := record.DecodeTxnCheck(r.Body)
		for _, i := range c.Items {
			if c.Topic == t.Topic && i.Half == t.Pos {
				out = append(out, Event{What: Checked, Until: i.Next, Text: fmt.Sprintf("check %d", i.Checks)})
			}
		}
		return out, err
	case record.TypeRecall:
		c, err := record.DecodeRecall(r.Body)
		for _, i := range c.Items {
			if c.Topic == t.Topic && i.Ref == t.Pos {
				out = append(out, Event{What: Recalled})
			}
		}
		return out, err
	case record.TypeMeta:
		m, err := record.DecodeMeta(r.Body)
		if m.Kind == record.MetaTopic && m.Deleted && record.TopicID(m.ID) == t.Topic {
			t.Over = true
		}
		return out, err
	}
	return t.consumed(out, r)
}

// stored is the message's own record.
func (t *Tracer) stored(out []Event, m *record.Msg, text string) []Event {
	e := Event{What: Stored, Text: text}
	switch {
	case m.Offset >= 0:
		t.Queue, t.Offset = m.Queue, m.Offset
		if text == "" {
			e.Text = place(m.Queue, m.Offset)
		}
	case m.Type == record.MsgTransaction:
		e.Text, e.Until = "half message", m.DeliverAt // when its producer is asked for the first time
	default:
		e.Text, e.Until = "delayed", m.DeliverAt
	}
	return append(out, e)
}

func place(q record.QueueID, off record.QueueOffset) string {
	return fmt.Sprintf("queue %d offset %d", q, off)
}

// placed notes that the message got a place.
func (t *Tracer) placed(out []Event, items []record.Place, what, text string) []Event {
	for _, p := range items {
		if p.Ref == t.Pos {
			t.Queue, t.Offset = p.Queue, p.Offset
			out = append(out, Event{What: what, Text: join(place(p.Queue, p.Offset), text)})
		}
	}
	return out
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ", " + b
}

// sources say who gave a verdict.
var sources = map[record.TxnSource]string{
	record.TxnByClient: "by its producer", record.TxnByCheck: "by its producer when asked", record.TxnByBroker: "by the broker: no producer answered",
}

func (t *Tracer) verdict(out []Event, e *record.TxnEnd) []Event {
	by := sources[e.Source]
	for _, p := range e.Committed {
		if p.Half == t.Pos {
			t.Queue, t.Offset = p.Queue, p.Offset
			out = append(out, Event{What: Committed, Text: join(place(p.Queue, p.Offset), by)})
		}
	}
	for _, pos := range e.RolledBack {
		if pos == t.Pos {
			out = append(out, Event{What: RolledBack, Text: by})
		}
	}
	return out
}

// reasons say why a message is dead.
var reasons = map[record.DeadReason]string{
	record.DeadMaxAttempts: "max attempts", record.DeadByClient: "forwarded by its consumer", record.DeadByOperator: "by an operator",
}

// dead is the end of the message in a group, or the beginning of the dead letter that is followed.
func (t *Tracer) dead(out []Event, r *record.Record) ([]Event, error) {
	d, err := record.DecodeDead(r.Body)
	if err != nil {
		return out, err
	}
	old, now := t.at(d.Topic, d.Queue, d.Offset), t.at(d.Msg.Topic, d.Msg.Queue, d.Msg.Offset)
	why := fmt.Sprintf("%s after %d attempts", reasons[d.Reason], d.Attempts)
	switch {
	case r.Pos == t.Pos && d.Group == 0:
		return t.stored(out, &d.Msg, fmt.Sprintf("%s, redriven from %s", place(d.Msg.Queue, d.Msg.Offset), old)), nil
	case r.Pos == t.Pos:
		return t.stored(out, &d.Msg, fmt.Sprintf("%s, dead letter of %s: %s", place(d.Msg.Queue, d.Msg.Offset), old, why)), nil
	case !t.here(d.Topic, d.Queue, d.Offset):
	case d.Group == 0:
		out = append(out, Event{What: Redriven, Text: "now " + now})
	default:
		held := t.Held[d.Group]
		delete(t.Held, d.Group)
		out = append(out, event(Dead, d.Group, held, fmt.Sprintf("%s, now %s", why, now)))
	}
	return out, nil
}

// at names a place in any topic.
func (t *Tracer) at(id record.TopicID, q record.QueueID, off record.QueueOffset) string {
	name := ""
	if t.Name != nil {
		name = t.Name(id)
	}
	if name == "" {
		name = fmt.Sprintf("#%d", id)
	}
	return fmt.Sprintf("topic %s %s", name, place(q, off))
}

// here tells whether a place is the message's.
func (t *Tracer) here(topic record.TopicID, q record.QueueID, off record.QueueOffset) bool {
	return t.Offset >= 0 && t.Topic == topic && t.Queue == q && t.Offset == off
}

// event is something that happens to the message while a group holds it.
func event(what string, g record.GroupID, held Lease, text string) Event {
	e := Event{What: what, Group: g, Client: held.Name, Attempt: held.Attempt, Text: text}
	if e.Client == "" && held.Client != 0 {
		e.Client, e.Unnamed = Unnamed(held.Client), held.Client
	}
	return e
}

// Unnamed is what a client is called whose id is not known.
func Unnamed(n record.ClientNum) string { return fmt.Sprintf("client #%d", n) }
