package pop

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/perigee-mq/perigee/store/record"
)

// TestScenarios runs the files in testdata; each begins with an empty table at time 0. Times are ms.
// Queues are of topic 1 and group 1; -q names one, 0 if it is left out. A lease is named by its number.
//
//	pop n=2 [end=E] [q=(0,1)] [invisible=MS] [session=MS] [client=C] [id=ATTEMPT-ID] [filter=(OFFSETS)]
//	ack|check L OFFSETS     nack|renew|suspend L OFFSETS in=MS     skip FROM TO      start at=OFFSET
//	again client=C id=I     end-session client=C [in=MS]           advance MS        stats
//	state                   restart (decoded, and replayed)        cells             drop topic|group
//
// pop leases what Plan finds below end; what is not in filter, if there is one, is skipped. Deliveries
// print as offset, or offset#attempt from the second on.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := &scenario{dead: func(Key, uint16) bool { return false }}
			s.table = New(Options{Dead: func(k Key, a uint16) bool { return s.dead(k, a) }})
			datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
				out := s.run(t, d)
				if fault := s.table.check(); fault != "" {
					t.Errorf("%s: invariant: %s", d.Pos, fault)
				}
				return out
			})
		})
	}
}

type scenario struct {
	table *Table
	dead  func(Key, uint16) bool
	dying []Dying // as told last
	now   int64
	pos   record.Pos // of the last lease; lease n is at 8*n
	log   []func(*Table) error
}

const scenarioEnd = 1000 // messages in each queue, if a pop does not say

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	k := Key{Group: 1, Topic: 1}
	if d.Cmd != "pop" {
		d.MaybeScanArgs(t, "q", &k.Queue)
	}
	switch d.Cmd {
	case "start":
		at := 0
		d.ScanArgs(t, "at", &at)
		s.table.Start(k, record.QueueOffset(at))
		return ""
	case "pop":
		return s.pop(t, d)
	case "ack", "check", "nack", "renew", "suspend":
		return s.handles(t, d, k)
	case "skip":
		n := numbers(t, d)
		return s.apply(func(t *Table) error {
			return t.ApplySkip(&record.Skip{Topic: 1, Group: 1, Queue: k.Queue, From: record.QueueOffset(n[0]), To: record.QueueOffset(n[1])})
		})
	case "end-session":
		var name string
		in := int64(0)
		d.ScanArgs(t, "client", &name)
		d.MaybeScanArgs(t, "in", &in)
		num, _ := s.table.Client([]byte(name))
		end := record.SessionEnd{Client: num, Until: s.now + in}
		return s.apply(func(t *Table) error { return t.ApplySessionEnd(&end) })
	case "again":
		return s.again(t, d)
	case "max":
		n := numbers(t, d)
		s.dead = func(_ Key, attempt uint16) bool { return int64(attempt) >= n[0] }
		return ""
	case "dying":
		return s.take(int(numbers(t, d)[0]))
	case "bury", "park", "postpone":
		return s.end(t, d)
	case "unpark":
		s.table.Unpark()
		return ""
	case "advance":
		s.now += numbers(t, d)[0]
		return s.advance()
	case "stats":
		st := s.table.Stats(k)
		return fmt.Sprintf("floor %d, next %d: %d in flight, %d ready (first %d), %d waiting\n", st.Floor, st.Next, st.InFlight, st.Ready, st.FirstReady, st.Waiting)
	case "state":
		return s.state(k)
	case "restart":
		return s.restart(t)
	case "cells":
		return fmt.Sprintf("%d chunks, %d pages, %d branches\n", s.table.chunks.inUse()-(wheelBase+levels*64)/8, s.table.pages.inUse()-1, s.table.branches.inUse()-1)
	case "drop":
		if d.HasArg("topic") {
			return s.apply(func(t *Table) error { t.DropTopic(1); return nil })
		}
		return s.apply(func(t *Table) error { t.DropGroup(1); return nil })
	}
	d.Fatalf(t, "no such command")
	return ""
}

func (s *scenario) apply(rec func(*Table) error) string {
	if err := rec(s.table); err != nil {
		return err.Error() + "\n"
	}
	s.log = append(s.log, rec)
	return ""
}

func (s *scenario) advance() string {
	due := 0
	s.table.Advance(s.now, func(_ Key, n int) { due += n })
	out := fmt.Sprintf("t=%d", s.now)
	if due > 0 {
		out += fmt.Sprintf(", %d due", due)
	}
	if at, ok := s.table.NextDue(); ok && at <= s.now {
		out += ", more"
	}
	return out + "\n"
}

// numbers are the arguments without a name; a-b stands for all from a to b.
func numbers(t *testing.T, d *datadriven.TestData) []int64 {
	var all []int64
	for _, a := range d.CmdArgs {
		from, to, span := strings.Cut(a.Key, "-")
		first, err := strconv.ParseInt(from, 10, 64)
		if err != nil {
			continue
		}
		last := first
		if span {
			if last, err = strconv.ParseInt(to, 10, 64); err != nil {
				d.Fatalf(t, "%v", err)
			}
		}
		for ; first <= last; first++ {
			all = append(all, first)
		}
	}
	return all
}

func (s *scenario) pop(t *testing.T, d *datadriven.TestData) string {
	n, end := 1, int64(scenarioEnd)
	queues := []string{"0"}
	ck := record.PopCk{Topic: 1, Group: 1, Until: 30_000}
	var client string
	d.MaybeScanArgs(t, "n", &n)
	d.MaybeScanArgs(t, "end", &end)
	d.MaybeScanArgs(t, "invisible", &ck.Until)
	d.MaybeScanArgs(t, "client", &client)
	if d.MaybeScanArgs(t, "session", &ck.Until); d.HasArg("session") {
		ck.Session = true
	}
	ck.Until += s.now
	if a, ok := d.Arg("id"); ok {
		ck.AttemptID = []byte(a.Vals[0])
	}
	if a, ok := d.Arg("q"); ok {
		queues = a.Vals
	}
	filter, filtered := d.Arg("filter")
	taken := 0
	match := func(off record.QueueOffset) Verdict {
		if filtered && !slices.Contains(filter.Vals, fmt.Sprint(off)) {
			return Skip
		}
		taken++
		return Take
	}
	for _, name := range queues {
		q, _ := strconv.Atoi(name)
		k := Key{Group: 1, Topic: 1, Queue: record.QueueID(q)}
		s.table.Start(k, 0)
		if items := s.table.Plan(k, record.QueueOffset(end), n-taken, match, nil); len(items) > 0 {
			ck.Sections = append(ck.Sections, record.PopSection{Queue: k.Queue, Items: items})
		}
	}
	if len(ck.Sections) == 0 {
		return "nothing\n"
	}
	if client != "" {
		var known bool
		if ck.Client, known = s.table.Client([]byte(client)); !known {
			ck.Client, ck.ClientName = s.table.NewClientNum(), []byte(client)
		}
	}
	s.pos += 8
	pos := s.pos
	out := s.apply(func(t *Table) error { return t.ApplyLease(pos, &ck) }) + fmt.Sprintf("lease %d:", pos/8)
	if len(ck.ClientName) > 0 {
		out += fmt.Sprintf(" client %d is %s:", ck.Client, client)
	}
	for _, sec := range ck.Sections {
		out += section(len(queues) > 1, sec.Queue)
		skipped := 0
		for _, it := range sec.Items {
			if it.Attempt == 0 {
				skipped++
				continue
			}
			out += delivery(it.Offset, it.Attempt)
		}
		if skipped > 0 {
			out += fmt.Sprintf(" (%d skipped)", skipped)
		}
	}
	return out + "\n"
}

func section(many bool, q record.QueueID) string {
	if many {
		return fmt.Sprintf(" [q%d]", q)
	}
	return ""
}

func delivery(off record.QueueOffset, attempt uint16) string {
	if attempt == 1 {
		return fmt.Sprintf(" %d", off)
	}
	return fmt.Sprintf(" %d#%d", off, attempt)
}

// handles does what a broker does with the handles of a client: it checks them, and makes a record
// for those that are current.
func (s *scenario) handles(t *testing.T, d *datadriven.TestData, k Key) string {
	n := numbers(t, d)
	lease, in := record.Pos(n[0])*8, int64(0)
	d.MaybeScanArgs(t, "in", &in)
	a := record.AckSection{Topic: 1, Group: 1, Queue: k.Queue}
	c := record.PopChange{Topic: 1, Group: 1, Until: s.now + in}
	by := [...][]string{Stale: nil, Current: nil, Done: nil}
	for _, off := range n[1:] {
		o := record.QueueOffset(off)
		state := s.table.Check(k, o, lease)
		by[state] = append(by[state], fmt.Sprint(off))
		if state == Current {
			a.Offsets = append(a.Offsets, o)
			c.Changes = append(c.Changes, record.Change{Queue: k.Queue, Offset: o, Lease: lease, Keep: d.Cmd == "suspend"})
		}
	}
	out := ""
	if d.Cmd == "check" && len(by[Current]) > 0 {
		out += "current: " + strings.Join(by[Current], " ") + "\n"
	}
	if len(by[Done]) > 0 {
		out += "done: " + strings.Join(by[Done], " ") + "\n"
	}
	if len(by[Stale]) > 0 {
		out += "stale: " + strings.Join(by[Stale], " ") + "\n"
	}
	switch {
	case d.Cmd == "check" || len(a.Offsets) == 0:
		return out
	case d.Cmd == "ack":
		return out + s.apply(func(t *Table) error { return t.ApplyAck(&record.PopAck{Sections: []record.AckSection{a}}) })
	default:
		return out + s.apply(func(t *Table) error { return t.ApplyChange(&c) })
	}
}

func (s *scenario) again(t *testing.T, d *datadriven.TestData) string {
	var client string
	d.ScanArgs(t, "client", &client)
	id, _ := d.Arg("id")
	num, _ := s.table.Client([]byte(client))
	left := s.table.Again(s.now, num, 1, 1, []byte(id.Vals[0]))
	if len(left) == 0 {
		return "nothing\n"
	}
	out := fmt.Sprintf("lease %d:", left[0].Lease/8)
	for _, l := range left {
		out += delivery(l.Offset, l.Attempt)
	}
	return out + "\n"
}

// state prints the un-done messages of a queue, and the clients.
func (s *scenario) state(k Key) string {
	var out strings.Builder
	q := s.table.byKey[k]
	if q == nil {
		return "no such queue\n"
	}
	s.table.eachPage(q, func(p *page) {
		for set := p.live; set != 0; set &= set - 1 {
			at := s.table.spotIn(q, p, lowest(set))
			fmt.Fprintf(&out, "%d: lease %d, attempt %d", at.offset(), at.node.lease()/8, at.node.attempt())
			if at.node.is(kept) {
				out.WriteString(", the next is the same")
			}
			if at.node.is(bound) {
				fmt.Fprintf(&out, ", session of client %d", at.node.client)
			}
			switch {
			case p.ready>>at.bit&1 != 0:
				out.WriteString(", ready\n")
			case at.node.is(waits):
				fmt.Fprintf(&out, ", waits after %d\n", s.table.deadline(at.node))
			default:
				fmt.Fprintf(&out, ", until %d\n", s.table.deadline(at.node))
			}
		}
	})
	s.table.EachClient(func(num record.ClientNum, name string) { fmt.Fprintf(&out, "client %d is %s\n", num, name) })
	if out.Len() == 0 {
		return "nothing\n"
	}
	return out.String()
}

// restart goes on with the decoded state, which must be the replayed one, too.
func (s *scenario) restart(t *testing.T) string {
	was := s.table.Encode(nil)
	o := Options{Dead: func(k Key, a uint16) bool { return s.dead(k, a) }}
	replayed := New(o)
	for _, rec := range s.log {
		if err := rec(replayed); err != nil {
			t.Errorf("replay: %v", err)
		}
	}
	s.table = New(o)
	if err := s.table.Decode(was); err != nil {
		t.Errorf("decode: %v", err)
	}
	if !bytes.Equal(was, replayed.Encode(nil)) || !bytes.Equal(was, s.table.Encode(nil)) {
		t.Error("the state has other bytes after a restart")
	}
	return s.advance()
}
