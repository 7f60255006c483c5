package pop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/perigee-mq/perigee/store/record"
)

// take tells what is dying, and what has come back to life.
func (s *scenario) take(limit int) string {
	var out strings.Builder
	s.dying = s.table.TakeDying(limit, func(_ Key, n int) { fmt.Fprintf(&out, "%d due\n", n) }, nil)
	for _, d := range s.dying {
		fmt.Fprintf(&out, "%d#%d of lease at %d\n", d.Offset, d.Attempt, d.Lease)
	}
	return out.String()
}

// end does something with what take told last.
func (s *scenario) end(t *testing.T, d *datadriven.TestData) string {
	for _, one := range s.dying {
		switch d.Cmd {
		case "park":
			s.table.Park(one)
		case "postpone":
			s.table.Postpone(one, s.now+numbers(t, d)[0])
		case "bury":
			if !s.table.IsTaken(one) {
				return "changed\n"
			}
			dead := record.Dead{Topic: one.Key.Topic, Group: one.Key.Group, Queue: one.Key.Queue, Offset: one.Offset}
			if out := s.apply(func(t *Table) error { return t.ApplyDead(&dead) }); out != "" {
				return out
			}
		}
	}
	return ""
}

// bury does something with what is dying, and holds what the table tells of it against the model.
func (r *run) bury() string {
	told := r.table.TakeDying(1+r.rng.IntN(4), func(k Key, _ int) { r.t.Errorf("a message of %v is not dead", k) }, nil)
	for _, d := range told {
		if g := r.model.queues[d.Key].undone[int64(d.Offset)]; g == nil || !g.held || g.lease != d.Lease || g.attempt != d.Attempt {
			r.t.Errorf("%+v is dying, the model has %+v", d, g)
		}
	}
	r.taken = append(r.taken, told...)
	if r.rng.IntN(4) == 0 {
		r.table.Unpark()
	}
	for _, d := range r.taken {
		var g *modelMessage
		if q := r.model.queues[d.Key]; q != nil {
			g = q.undone[int64(d.Offset)]
		}
		if is := g != nil && g.held && g.lease == d.Lease; is != r.table.IsTaken(d) {
			r.t.Errorf("%+v: taken is %v, the model has %+v", d, !is, g)
		} else if !is {
			continue
		}
		switch r.rng.IntN(4) {
		case 0:
			r.table.Park(d)
		case 1:
			r.table.Postpone(d, r.model.now+r.span())
		default:
			rec := record.Dead{Topic: d.Key.Topic, Group: d.Key.Group, Queue: d.Key.Queue, Offset: d.Offset}
			r.apply(func(t *Table) error { return t.ApplyDead(&rec) })
			delete(r.model.queues[d.Key].undone, int64(d.Offset))
			r.model.sweep()
		}
	}
	r.taken = r.taken[:0]
	return "bury"
}
