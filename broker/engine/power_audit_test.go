package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/redriven"
	"github.com/perigee-mq/perigee/broker/timer"
	"github.com/perigee-mq/perigee/broker/txn"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// foundAt is one entry of a queue.
type foundAt struct {
	note  *note
	spot  spot
	pos   brokerapi.LogPos
	moved bool // a dead letter that was moved on
}

// stored reads all queues of all topics, in order.
func (p *power) stored() []foundAt {
	var all []foundAt
	require.NoError(p.t, p.b.engine.call(p.t.Context(), func(w *writer) {
		for _, k := range w.views.queues.Keys() {
			lo, hi := w.views.queues.Bounds(k)
			for off := lo; off < hi; off++ {
				e, err := w.views.queues.At(k, off)
				if err != nil {
					p.t.Errorf("queue %v offset %d: %v", k, off, err)
					return
				}
				m := p.read(w, e)
				all = append(all, foundAt{
					note: p.noteOf(m), spot: spot{k.Topic, brokerapi.QueueID(k.Queue), brokerapi.QueueOffset(off)}, pos: brokerapi.LogPos(e.Pos),
					moved: w.views.redriven.Has(redriven.Key{Topic: k.Topic, Queue: k.Queue}, off),
				})
			}
		}
	}))
	slices.SortStableFunc(all, func(a, b foundAt) int {
		return cmp.Or(cmp.Compare(a.spot.topic, b.spot.topic), cmp.Compare(a.spot.queue, b.spot.queue), cmp.Compare(a.spot.off, b.spot.off))
	})
	return all
}

// read returns the body of a stored message.
func (p *power) read(w *writer, e queue.Entry) string {
	rec, ref, err := w.e.log.Read(e.Pos, e.Size)
	require.NoError(p.t, err)
	defer ref.Release()
	var before record.Dead
	m, err := storedIn(&rec, &before)
	require.NoError(p.t, err)
	return string(m.Body)
}

// fateOf is what the engine holds of one message.
type fateOf struct {
	copies, letters, moved, given int
	open                          int  // half messages without a verdict
	timer                         bool // waits for its time
}

// audit looks at all that is stored, right after a restart: what was answered holds, and nothing is half
// there.
func (p *power) audit() {
	all := p.stored()
	fates := map[*note]*fateOf{}
	for _, n := range p.order {
		fates[n] = &fateOf{}
	}
	last := map[string]*note{} // of each message group
	at := map[spot]string{}
	moved := 0
	for _, f := range all {
		at[f.spot] = f.note.id
		v := fates[f.note]
		switch f.spot.topic {
		case topicDead:
			v.letters++
			if f.moved {
				v.moved++
				moved++
			}
			continue
		case topicGiven:
			v.given++
			continue
		}
		if v.copies++; f.spot.topic != f.note.topic {
			p.t.Errorf("%s is in topic %d", f.note.id, f.spot.topic)
		}
		p.inPlace(f, v.copies, last)
	}
	for s, id := range p.seen {
		if at[s] != id {
			p.t.Errorf("%s was at %v and is not there after restart %d, but %q", id, s, p.times, at[s])
		}
	}
	maps.Copy(p.seen, at)
	if moved < p.redriven || moved > p.redriven+p.redrivenMaybe {
		p.t.Errorf("%d dead letters were moved on, %d by answered calls and up to %d by others", moved, p.redriven, p.redrivenMaybe)
	}
	p.redriven, p.redrivenMaybe = moved, 0
	for _, v := range fates {
		p.count["(dead letters)"] += v.letters
		p.count["(given up)"] += v.given
		if v.timer {
			p.count["(waiting)"]++
		}
	}
	p.count["(restarts)"]++
	require.NoError(p.t, p.b.engine.call(p.t.Context(), func(w *writer) {
		for _, n := range p.order {
			v := fates[n]
			v.open = len(w.views.txns.Open(nil, n.topic, txn.IDOf([]byte(n.id))))
			if n.stored != nil && n.message.DeliverAt > 0 {
				state, _ := w.views.timers.State(n.topic, n.message.DeliverAt, record.Pos(n.stored.Pos))
				v.timer = state == timer.Waiting
			}
		}
		p.definitions(w)
	}))
	for _, n := range p.order {
		p.judge(n, fates[n])
	}
	for _, n := range p.order {
		p.whole(n)
	}
	p.deaths(all, fates)
	p.standing()
}

// inPlace checks where a message is, copies of it being found so far.
func (p *power) inPlace(f foundAt, copies int, last map[string]*note) {
	n := f.note
	if r := n.stored; copies == 1 && r != nil && r.Offset >= 0 && (r.Queue != f.spot.queue || r.Offset != f.spot.off || r.Pos != f.pos) {
		p.t.Errorf("%s is at %v, its send was answered with %v", n.id, f.spot, *r)
	}
	if n.place == nil {
		n.place = &f.spot
	}
	if n.topic != topicFIFO && n.topic != topicLite {
		return
	}
	k := fmt.Sprint(f.spot.queue, n.message.GroupHash)
	if o := last[k]; o != nil && o.seq >= n.seq && !n.lost && !o.lost {
		p.t.Errorf("%s stands behind %s, which was sent after it", n.id, o.id)
	}
	last[k] = n
}

// judge compares what is there of a message with what was answered.
func (p *power) judge(n *note, v *fateOf) {
	wrong := func(what string) {
		p.t.Errorf("%s: %s, after restart %d: %+v; answered %+v, firm %v, recall %d, commit %d, roll back %d", n.id, what, p.times, *v, n.stored, n.firm, n.recall, n.commit, n.roll)
	}
	there := v.copies+v.given+v.open > 0 || v.timer
	switch {
	case n.topic == topicTxn:
		switch {
		case v.copies+v.given+v.open > 1:
			wrong("it is there more than once")
		case n.commit == surely && v.copies != 1:
			wrong("it was committed")
		case n.roll == surely && there:
			wrong("it was rolled back")
		case n.firm && !there && n.roll == untried:
			wrong("it is gone")
		case v.copies > 0 && n.commit == untried:
			wrong("nobody has committed it")
		}
	case n.message.DeliverAt > 0:
		switch {
		case v.copies > 1 || v.copies > 0 && v.timer:
			wrong("it is there more than once")
		case n.recall == surely && there:
			wrong("it was recalled")
		case n.firm && n.stored != nil && n.recall == untried && !there:
			wrong("it is gone")
		}
	case n.firm && v.copies == 0:
		wrong("it is gone")
	case v.copies != 1+v.moved && there:
		wrong("it is there more than once")
	}
	if there {
		n.firm = true
		if v.copies > 0 && n.topic == topicTxn && n.commit == untried {
			n.commit = maybe
		}
		return
	}
	n.gone = !n.firm && n.message.DeliverAt == 0 && n.topic != topicTxn
}

// whole checks that of one request all messages are there or none.
func (p *power) whole(n *note) {
	for _, o := range n.with {
		if o.gone != n.gone {
			p.t.Errorf("%s and %s were sent with one request, one of them is there", n.id, o.id)
		}
	}
}

// deaths checks the dead letters: each copy that a message had was moved at most once, and all but the newest
// one were.
func (p *power) deaths(all []foundAt, fates map[*note]*fateOf) {
	number := map[*note]int{}
	for _, f := range all {
		if f.spot.topic != topicSync {
			continue
		}
		number[f.note]++
		k, i, v := p.subs[groupB][f.spot], number[f.note], fates[f.note]
		switch {
		case k != nil && k.dead == surely && v.letters < i:
			p.t.Errorf("%s: copy %d was moved to the dead letters, where there are %d", f.note.id, i, v.letters)
		case k != nil && k.acked == surely && v.letters >= i:
			p.t.Errorf("%s: copy %d was acknowledged, and there are %d dead letters", f.note.id, i, v.letters)
		case v.letters > i && i == v.copies, v.letters < v.copies-1:
			p.t.Errorf("%s: %+v", f.note.id, *v)
		case v.letters >= i:
			if k == nil {
				k = &taken{note: f.note, spot: f.spot}
				p.subs[groupB][f.spot] = k
			}
			k.dead = surely
		}
	}
}

// definitions checks topics that were made or deleted meanwhile.
func (p *power) definitions(w *writer) {
	for id, f := range p.defined {
		is := w.views.topics.Get(id) != nil
		switch d := p.deleted[id]; {
		case is && d == surely:
			p.t.Errorf("topic %d was deleted", id)
		case !is && f == surely && d == untried:
			p.t.Errorf("topic %d was made", id)
		case !is && f == maybe:
			delete(p.defined, id)
		case is:
			p.defined[id] = surely
			delete(p.deleted, id)
		case d == maybe:
			p.deleted[id] = surely
		}
	}
}
