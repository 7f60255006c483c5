package election

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/controller/state"
)

// group of three replicas in incarnations 11, 12, 13, led by 1 in epoch 5.
func group() *state.Shard {
	return &state.Shard{
		ID: 7, Name: "a", Epoch: 5, Master: 1, MasterInc: 11, Set: []state.ReplicaID{1, 2, 3}, SetVersion: 9, MinISR: 2,
		Replicas: []state.Replica{{ID: 1, Incarnation: 11}, {ID: 2, Incarnation: 12}, {ID: 3, Incarnation: 13}},
	}
}

func alive(inc state.Incarnation, end int64) Report {
	return Report{Inc: inc, Alive: true, End: end, Known: end > 0}
}

func (d Decision) String() string {
	switch {
	case d.Elect != nil:
		return fmt.Sprintf("%d@%d after epoch %d: %s", d.Elect.Winner, d.Elect.Inc, d.Elect.Epoch, d.Reason)
	case d.Stuck:
		return "stuck"
	case d.Again != 0 && d.Withhold:
		return fmt.Sprintf("no leases, again at %v", d.Again)
	case d.Again != 0:
		return fmt.Sprintf("again at %v", d.Again)
	}
	return "-"
}

func TestDecide(t *testing.T) {
	const now = 100 * time.Second
	type reports = map[state.ReplicaID]Report
	all := func(change func(reports)) reports {
		r := reports{1: alive(11, 50), 2: alive(12, 40), 3: alive(13, 45)}
		change(r)
		return r
	}
	same := func(reports) {}
	dead := func(r reports) { delete(r, 1) }
	for name, test := range map[string]struct {
		shard   func(h *state.Shard)
		reports func(reports)
		group   Group
		want    string
	}{
		"all is well":                       {reports: same, want: "-"},
		"the longest log":                   {reports: dead, want: "3@13 after epoch 5: silent"},
		"equal logs: the lowest id":         {reports: func(r reports) { delete(r, 1); r[3] = alive(13, 40) }, want: "2@12 after epoch 5: silent"},
		"a log that is not known":           {reports: func(r reports) { delete(r, 1); r[3] = alive(13, 0) }, want: "2@12 after epoch 5: silent"},
		"its lease may last":                {reports: dead, group: Group{Free: now + 1}, want: "again at 1m40.000000001s"},
		"its lease is just over":            {reports: dead, group: Group{Free: now}, want: "3@13 after epoch 5: silent"},
		"heard in an older incarnation":     {reports: func(r reports) { r[1] = alive(10, 50) }, want: "3@13 after epoch 5: silent"},
		"a candidate's older incarnation":   {reports: func(r reports) { delete(r, 1); r[3] = alive(12, 99) }, want: "2@12 after epoch 5: silent"},
		"resigned: no wait, itself too":     {shard: func(h *state.Shard) { h.Master, h.MasterInc = 0, 0 }, reports: same, group: Group{Free: now + time.Hour}, want: "1@11 after epoch 5: vacant"},
		"S before ELR":                      {shard: func(h *state.Shard) { h.Set, h.ELR = []state.ReplicaID{1, 2}, []state.ReplicaID{3} }, reports: dead, want: "2@12 after epoch 5: silent"},
		"ELR when S is away":                {shard: func(h *state.Shard) { h.Set, h.ELR = []state.ReplicaID{1}, []state.ReplicaID{3} }, reports: dead, want: "3@13 after epoch 5: silent"},
		"nobody else, whatever its log":     {shard: func(h *state.Shard) { h.Set = []state.ReplicaID{1} }, reports: dead, want: "stuck"},
		"stuck is not waiting":              {shard: func(h *state.Shard) { h.Set = []state.ReplicaID{1} }, reports: dead, group: Group{Free: now + 1}, want: "stuck"},
		"stream closed, no answer, fast":    {reports: func(r reports) { x := r[1]; x.Gone = true; r[1] = x }, group: Group{Free: now + 1, Fast: true}, want: "3@13 after epoch 5: gone"},
		"stream closed, no answer, patient": {reports: func(r reports) { x := r[1]; x.Gone = true; r[1] = x }, group: Group{Free: now + 1}, want: "-"},
		"fast, but nobody else":             {shard: func(h *state.Shard) { h.Set = []state.ReplicaID{1} }, reports: func(r reports) { x := r[1]; x.Gone = true; r[1] = x }, group: Group{Fast: true}, want: "stuck"},
		"who is gone is not elected":        {reports: func(r reports) { delete(r, 1); x := r[3]; x.Gone = true; r[3] = x }, want: "2@12 after epoch 5: silent"},
		"transfer waits for the lease":      {reports: same, group: Group{Transfer: true, To: 2, Free: now + 1}, want: "no leases, again at 1m40.000000001s"},
		"transfer to the one that is named": {reports: same, group: Group{Transfer: true, To: 2}, want: "2@12 after epoch 5: transfer"},
		"transfer to anybody else":          {reports: same, group: Group{Transfer: true}, want: "3@13 after epoch 5: transfer"},
		"transfer to one that is away":      {reports: func(r reports) { delete(r, 2) }, group: Group{Transfer: true, To: 2}, want: "-"},
		"transfer outside of S":             {shard: func(h *state.Shard) { h.Set = []state.ReplicaID{1, 3} }, reports: same, group: Group{Transfer: true, To: 2}, want: "-"},
		"the master resigned for it":        {shard: func(h *state.Shard) { h.Master, h.MasterInc = 0, 0 }, reports: same, group: Group{Transfer: true, To: 2}, want: "2@12 after epoch 5: vacant"},
		"it resigned, the heir is away":     {shard: func(h *state.Shard) { h.Master, h.MasterInc = 0, 0 }, reports: func(r reports) { delete(r, 1); delete(r, 2) }, group: Group{Transfer: true, To: 2}, want: "3@13 after epoch 5: vacant"},
		"it died, the heir is away":         {reports: func(r reports) { delete(r, 1); delete(r, 2) }, group: Group{Transfer: true, To: 2}, want: "3@13 after epoch 5: silent"},
	} {
		t.Run(name, func(t *testing.T) {
			g := test.group
			g.Shard = group()
			if test.shard != nil {
				test.shard(g.Shard)
			}
			g.Reports = all(test.reports)
			if got := Decide(g, now).String(); got != test.want {
				t.Errorf("%s; want %s", got, test.want)
			}
		})
	}
}

// Whatever is seen: only members of S and ELR that were heard from in their present incarnation are proposed, a
// master that is well is left alone, and nobody is replaced while its lease may last, but for the reasons that say so.
func TestAnyGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		num := func(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, label) }
		flip := func(label string) bool { return rapid.Bool().Draw(t, label) }
		h := &state.Shard{ID: 1, Epoch: 3, MinISR: 1}
		g := Group{Shard: h, Reports: map[state.ReplicaID]Report{}, Free: time.Duration(num("free", 0, 2)), Transfer: flip("transfer"), To: state.ReplicaID(num("to", 0, 5)), Fast: flip("fast")}
		for id := state.ReplicaID(1); id <= 4; id++ {
			h.Replicas = append(h.Replicas, state.Replica{ID: id, Incarnation: state.Incarnation(num("inc", 1, 2))})
			switch num("member", 0, 2) {
			case 0:
				h.Set = append(h.Set, id)
			case 1:
				h.ELR = append(h.ELR, id)
			}
			if flip("heard") {
				g.Reports[id] = Report{Inc: state.Incarnation(num("heard inc", 1, 2)), Alive: flip("alive"), Gone: flip("gone"), End: int64(num("end", 0, 2)), Known: flip("known")}
			}
		}
		if len(h.Set) > 0 && flip("led") {
			h.Master = h.Set[0]
			h.MasterInc = h.Replica(h.Master).Incarnation
		}
		const now = 1
		d := Decide(g, now)
		m := g.Reports[h.Master]
		well := h.Master != 0 && m.Alive && m.Inc == h.MasterInc
		if d.Elect == nil {
			return
		}
		w := d.Elect.Winner
		r := g.Reports[w]
		if !slices.Contains(h.Set, w) && !slices.Contains(h.ELR, w) || !r.Alive || r.Inc != h.Replica(w).Incarnation || d.Elect.Inc != r.Inc || d.Elect.Epoch != h.Epoch || w == h.Master {
			t.Fatalf("%v of %+v", d, g)
		}
		if well && d.Reason != Transfer && d.Reason != Gone {
			t.Fatalf("%v, but the master is well: %+v", d, g)
		}
		if h.Master != 0 && now < g.Free && (d.Reason != Gone || !g.Fast || !m.Gone) {
			t.Fatalf("%v while the lease may last: %+v", d, g)
		}
	})
}
