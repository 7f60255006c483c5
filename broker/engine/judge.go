package engine

import (
	"cmp"
	"slices"

	"github.com/perigee-mq/perigee/broker/filter"
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// judge tells whether messages match an SQL filter. Their properties are in their records, not in queue
// entries: the writer reads a few that are at hand, and all others are read beside it, many in one go,
// while the receives with this filter wait. So a scan through a long backlog is a series of such flights
// and turns of the writer, none of which takes long.
//
// All receives of one group on one topic that have the same filter share a judge, so that they do not
// read the same messages again and again.
type judge struct {
	sub     *sub
	text    string
	sql     *filter.SQL
	known   map[record.QueueID][]judged // what the last flight found, by offset
	waiting []*popOp
	flying  bool

	here    int      // messages that the writer may still read for the receive that is running
	unknown bool     // that receive met one that must be read beside the writer
	flight  []judged // what is gathered for the next flight, if gather
	gather  bool
}

// judged is one message, and whether it matches.
type judged struct {
	queue  record.QueueID
	offset record.QueueOffset
	pos    record.Pos
	size   uint32
	match  bool
}

// Bounds of judging.
const (
	judgeHere      = 64              // messages that the writer reads by itself for one receive
	judgeHereBytes = atHandBytes / 4 // the largest of them
	judgeTurn      = 1024            // messages that the writer reads by itself in one turn, all receives together
	flightMin      = 64              // messages of a flight, if the broker has many
	flightBytes    = 4 << 20         // bytes that one flight reads, one message may exceed it
	flightsShare   = 16              // flights under way that halve the next one
	partsPlain     = 64              // parts of an expression that costs little
)

// judgeOf finds the judge of a receive, nil if its filter needs none.
func (w *writer) judgeOf(u *sub, f *brokerapi.Filter) (*judge, error) {
	if f.Kind != brokerapi.FilterSQL {
		return nil, nil
	}
	if j := u.judges[f.SQL]; j != nil {
		return j, nil
	}
	sql, err := w.e.filters.Get(f.SQL)
	if err != nil {
		return nil, err
	}
	j := &judge{sub: u, text: f.SQL, sql: sql}
	if u.judges == nil {
		u.judges = map[string]*judge{}
	}
	u.judges[f.SQL] = j
	return j, nil
}

// begin is called before each run of a receive.
func (j *judge) begin() {
	j.here, j.unknown = max(1, judgeHere*partsPlain/max(partsPlain, j.sql.Parts())), false
}

// leave is called when a receive needs j no longer.
func (j *judge) leave() {
	if !j.flying && len(j.waiting) == 0 && j.sub.judges[j.text] == j {
		delete(j.sub.judges, j.text)
	}
}

// judge says what to do with a message: Stop if that is not known yet.
func (j *judge) judge(w *writer, q record.QueueID, off record.QueueOffset, e *queue.Entry) pop.Verdict {
	if j.gather {
		j.flight = append(j.flight, judged{queue: q, offset: off, pos: e.Pos, size: e.Size})
		return pop.Skip
	}
	list := j.known[q]
	if i, is := slices.BinarySearchFunc(list, off, byOffset); is && list[i].pos == e.Pos {
		return verdict(list[i].match)
	}
	if j.here == 0 || w.judges.here == 0 || e.Size > judgeHereBytes || !w.atHand([]leased{{pos: e.Pos, size: e.Size}}) {
		j.unknown = true
		return pop.Stop
	}
	j.here--
	w.judges.here--
	return verdict(w.e.matches(j.sql, e.Pos, e.Size))
}

func byOffset(m judged, off record.QueueOffset) int { return cmp.Compare(m.offset, off) }

func verdict(match bool) pop.Verdict {
	if match {
		return pop.Take
	}
	return pop.Skip
}

// matches reads a message. One that cannot be read matches: it is met again when it is delivered, and
// reported there.
func (e *Engine) matches(sql *filter.SQL, pos record.Pos, size uint32) bool {
	rec, ref, err := e.read(pos, size)
	if err != nil {
		return true
	}
	defer ref.Release()
	m, err := record.DecodeMsg(rec.Body)
	return err != nil || sql.Match(&m)
}

// fits compares the properties of a message with a filter.
func (e *Engine) fits(f *brokerapi.Filter, m *record.Msg) bool {
	if f.Kind != brokerapi.FilterSQL {
		return tagged(f, m.Sys)
	}
	sql, err := e.filters.Get(f.SQL)
	return err == nil && sql.Match(m)
}

// judges is what the writer knows of all judges.
type judges struct {
	flights int // under way
	here    int // messages that it may still read in this turn
}

// wait lets a receive wait for what it must know, and begins to find it out. It runs when the records of
// the turn are written.
func (j *judge) wait(w *writer, o *popOp, t *topicState, g *group.Definition) {
	j.waiting = append(j.waiting, o)
	if j.flying {
		return
	}
	j.flying = true
	w.judges.flights++
	most := w.e.o.ScanEntries * flightsShare / (flightsShare + w.judges.flights) * partsPlain / max(partsPlain, j.sql.Parts())
	j.gather, j.flight = true, nil
	turn := j.sub.turn
	s := scan{w: w, t: t, g: g, req: o.req, room: popMax, left: max(most, min(flightMin, w.e.o.ScanEntries)), judge: j, found: w.found.empty()}
	s.run(j.sub, nil)
	w.found = s.found
	j.sub.turn, j.gather = turn, false
	op := &judgedOp{j: j, list: j.flight}
	j.flight = nil
	want := 0
	for _, o := range j.waiting {
		want = min(want+popLimit(o.req), popMax)
	}
	w.e.reads.Go(func() {
		w.e.flights <- struct{}{}
		op.fly(w.e, want)
		<-w.e.flights
		w.e.submitOwn(op)
	})
}

// judgedOp brings what a flight has found to the writer.
type judgedOp struct {
	waiter
	j    *judge
	list []judged
}

// fly reads messages until enough match.
func (o *judgedOp) fly(e *Engine, want int) {
	size := 0
	for i := range o.list {
		m := &o.list[i]
		if m.match = e.matches(o.j.sql, m.pos, m.size); m.match {
			want--
		}
		if size += int(m.size); want <= 0 || size >= flightBytes {
			o.list = o.list[:i+1]
			return
		}
	}
}

func (o *judgedOp) bytes() int { return 64 }

func (o *judgedOp) run(w *writer) {
	j := o.j
	j.known = map[record.QueueID][]judged{}
	for _, m := range o.list {
		j.known[m.queue] = append(j.known[m.queue], m)
	}
	for _, list := range j.known {
		slices.SortFunc(list, func(a, b judged) int { return cmp.Compare(a.offset, b.offset) })
	}
	for _, waits := range j.waiting {
		w.later = append(w.later, waits)
	}
	j.waiting, j.flying = nil, false
	w.judges.flights--
}

// finish answers those who wait if the engine has ended.
func (o *judgedOp) finish(w *writer, err error) {
	if err == nil {
		return
	}
	for _, waits := range o.j.waiting {
		waits.finish(w, err)
	}
	o.j.waiting = nil
}
