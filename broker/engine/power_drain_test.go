package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// delivered takes what a receive was answered with.
func (p *power) delivered(g record.GroupID, t record.TopicID, ms []brokerapi.Delivery, invisible time.Duration) {
	now := p.b.clock.Lease()
	reply := map[spot]bool{}
	for i := range ms {
		m := &ms[i]
		n, s := p.noteOf(string(m.Body)), spot{t, m.Queue, m.Offset}
		wrong := func(format string, args ...any) {
			p.t.Errorf("%s at %v was delivered to group %d %s (restart %d)", n.id, s, g, fmt.Sprintf(format, args...), p.times)
		}
		p.sees(n, s)
		k := p.subs[g][s]
		if k == nil || k.note != n { // an asynchronous topic may have lost another one there
			k = &taken{note: n, spot: s}
			p.subs[g][s] = k
		}
		start, begun := p.starts[n.message.Lite]
		switch {
		case k.acked == surely:
			wrong("after its ack was answered")
		case k.dead == surely:
			wrong("after it was moved to the dead letters")
		case now < k.until:
			wrong("%d ms before its lease ends", k.until-now)
		case n.message.DeliverAt > p.b.clock.Wall():
			wrong("%d ms early", n.message.DeliverAt-p.b.clock.Wall())
		case n.recall == surely:
			wrong("after its recall was answered")
		case t == topicTxn && (n.commit == untried || n.roll == surely):
			wrong("and not committed")
		case g == groupReset && s.off < p.moves.sure[s.queue]:
			wrong("behind which a reset has moved it")
		case g == groupLite2 && begun && n.seq <= start && !n.lost:
			wrong("which begins behind it")
		}
		if t == topicTxn {
			n.commit = max(n.commit, maybe)
		}
		if t == topicFIFO || g == groupLite {
			p.inOrder(g, n, s, reply)
		}
		reply[s] = true
	}
	for i := range ms {
		k := p.subs[g][spot{t, ms[i].Queue, ms[i].Offset}]
		k.until, k.lease = now+invisible.Milliseconds(), got{ms[i], ""}
		if !slices.Contains(p.held[g], k) {
			p.held[g] = append(p.held[g], k)
		}
	}
}

// inOrder checks that what was sent to a message group before n is done or comes with it, and that nothing of
// the group is out.
func (p *power) inOrder(g record.GroupID, n *note, s spot, reply map[spot]bool) {
	for _, o := range p.order {
		if o.place == nil || o.topic != n.topic || o.message.GroupHash != n.message.GroupHash || o.message.Lite != n.message.Lite || o.place.queue != s.queue {
			continue
		}
		k := p.subs[g][*o.place]
		switch done := k != nil && k.acked != untried; {
		case done || reply[*o.place]:
		case k != nil && p.b.clock.Lease() < k.until:
			p.t.Errorf("%s was delivered while %s of its message group is out", n.id, o.id)
		case o.place.off < s.off:
			p.t.Errorf("%s was delivered before %s of its message group, which is not done", n.id, o.id)
		}
	}
}

// sees notes a message in a place where a client has seen it: there it stays.
func (p *power) sees(n *note, s spot) {
	if id, was := p.seen[s]; was && id != n.id {
		p.t.Errorf("%s stands where %s was seen, at %v", n.id, id, s)
	}
	if s.topic == topicAsync {
		return
	}
	p.seen[s] = n.id
	if n.firm = true; n.place == nil && s.topic == n.topic {
		n.place = &s
	}
}

// drain ends all that is open, and reads everything: all that was promised comes, and nothing else.
func (p *power) drain() {
	for _, n := range p.order {
		if n.topic == topicTxn && n.commit != surely && n.roll != surely {
			p.ending("commit", n, true)()
		}
	}
	for i := range 12 {
		if i > 8 { // what could not be read for once was left alone for a while
			p.b.clock.advance(3 * time.Hour)
		}
		p.empty()
		p.b.clock.advance(20 * time.Second)
		require.NoError(p.t, p.attend())
	}
	for more := true; more; more = p.empty() > 0 {
		p.b.until("dead letters are moved", func() bool {
			busy := true
			require.NoError(p.t, p.b.engine.call(p.t.Context(), func(w *writer) {
				busy = w.graves.busy || w.views.pop.HasDying() || w.topics.waitSync()
			}))
			return !busy
		})
	}
	p.audit()
	for _, f := range p.stored() {
		for _, s := range powerSubs {
			if s.topic != f.spot.topic || s.group == groupLite2 || f.moved || s.group == groupReset && f.spot.off < p.moves.may[f.spot.queue] {
				continue
			}
			if k := p.subs[s.group][f.spot]; k == nil || k.note != f.note || k.acked == untried && k.dead == untried {
				p.t.Errorf("%s at %v never came to group %d, or was not done there (restart %d)", f.note.id, f.spot, s.group, p.times)
			}
		}
	}
}

// empty receives and acknowledges what there is for every group, and returns how much that was.
func (p *power) empty() (n int) {
	for _, s := range powerSubs {
		for ms := p.receive(s.group, s.topic); len(ms) > 0; ms = p.receive(s.group, s.topic) {
			n += len(ms)
			for j, err := range p.b.ack(s.topic, s.group, ms...) {
				require.NoError(p.t, err)
				p.subs[s.group][spot{s.topic, ms[j].Queue, ms[j].Offset}].acked = surely
			}
		}
	}
	return n
}
