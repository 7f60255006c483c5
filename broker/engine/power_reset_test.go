package engine

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/store/record"
)

// moves is what is known of the resets of one group.
type moves struct {
	flying  bool // one is under way
	popping int  // receives of the group under way
	// sure is where it stands by an answered reset: nothing below comes. What is below may need not come.
	sure, may map[brokerapi.QueueID]brokerapi.QueueOffset
	asked     []brokerapi.ResetQueue // what one without an answer would have done
}

func newMoves() moves {
	return moves{sure: map[brokerapi.QueueID]brokerapi.QueueOffset{}, may: map[brokerapi.QueueID]brokerapi.QueueOffset{}}
}

// on tells whether a reset of the group is under way.
func (m *moves) on(g record.GroupID) bool { return g == groupReset && m.flying }

func (p *power) reset() func() {
	if p.moves.popping > 0 || p.moves.asked != nil { // of two that are unknown nothing could be said
		return nil
	}
	ctx := context.Background()
	req := brokerapi.ResetRequest{
		Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupReset), To: brokerapi.ResetTo(1 + p.rng.IntN(4)), Skip: p.rng.Int64N(4),
		TimeMS: p.b.clock.Wall() - p.rng.Int64N(30_000),
	}
	var dry []brokerapi.ResetQueue
	if !p.bursting {
		ask := req
		ask.DryRun = true
		r, err := p.b.proxy.Reset(ctx, &ask)
		if err != nil {
			return nil
		}
		dry = r.Queues
	} else if req.To == brokerapi.ResetTime {
		req.To = brokerapi.ResetBegin // to seek it would wait for the writer
	}
	p.moves.flying = true
	answer := blocking(p, func() (*brokerapi.ResetReply, error) { return p.b.proxy.Reset(ctx, &req) })
	return func() {
		r, err := answer()
		switch {
		case err == nil:
			if dry != nil {
				require.Equal(p.t, dry, r.Queues, "the dry run said otherwise")
			}
			p.moved(r.Queues)
			p.answered("reset")
		case dry != nil:
			p.moves.asked = dry
		default:
			p.maybeMoved()
		}
	}
}

// moved takes a reset that has happened.
func (p *power) moved(queues []brokerapi.ResetQueue) {
	for _, q := range queues {
		p.moves.sure[q.Queue], p.moves.may[q.Queue] = q.To, q.To
		for s := range p.subs[groupReset] {
			if s.queue == q.Queue {
				delete(p.subs[groupReset], s)
			}
		}
	}
	p.held[groupReset] = nil
}

// maybeMoved takes a reset of which nothing is known.
func (p *power) maybeMoved() {
	for q := range brokerapi.QueueID(4) {
		p.moves.sure[q], p.moves.may[q] = 0, 1<<60
	}
	for _, k := range p.subs[groupReset] {
		k.acked, k.until = min(k.acked, maybe), 0
	}
	p.held[groupReset] = nil
}

// standing checks where groups stand.
func (p *power) standing() {
	old, now, all := true, true, map[brokerapi.QueueID]brokerapi.QueueOffset{}
	for q := range brokerapi.QueueID(4) {
		r, err := p.b.proxy.Offset(p.t.Context(), &brokerapi.OffsetRequest{
			Of: brokerapi.OffsetOfGroup, Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupPull), Queue: q,
		})
		at, was := p.position[q]
		is := err == nil
		if is {
			all[q] = r.Offset
		}
		old = old && is == was && all[q] == at
		if i := slices.IndexFunc(p.setting, func(s brokerapi.SetOffset) bool { return s.Queue == q }); i >= 0 {
			now = now && is && all[q] == p.setting[i].Offset
		} else {
			now = now && is == was && all[q] == at
		}
	}
	if !old && (!now || p.setting == nil) {
		p.t.Errorf("positions are %v; %v was answered, %v was asked for", all, p.position, p.setting)
	}
	p.position, p.setting = all, nil

	queues, err := p.b.proxy.DescribeGroup(p.t.Context(), brokerapi.TopicID(topicSync), brokerapi.GroupID(groupReset))
	require.NoError(p.t, err)
	for _, q := range queues {
		if q.Floor < p.moves.sure[q.Queue] && p.moves.asked == nil {
			p.t.Errorf("queue %d: a reset to %d was answered, the group stands at %d", q.Queue, p.moves.sure[q.Queue], q.Floor)
		}
	}
	if p.moves.asked == nil {
		return
	}
	same, old, now := true, true, true
	for i, q := range p.moves.asked {
		same = same && q.From == q.To
		old, now = old && queues[i].Floor == q.From, now && queues[i].Floor == q.To
	}
	switch {
	case same && now:
		p.maybeMoved()
	case now:
		p.moved(p.moves.asked)
	case !old:
		p.t.Errorf("a reset was done in part: %+v was asked for, the group stands at %+v", p.moves.asked, queues)
	}
	p.moves.asked = nil
}
