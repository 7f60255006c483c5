package pop

import (
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// Verdict is what Plan does with a message.
type Verdict uint8

// Verdicts.
const (
	Take Verdict = iota // hand it out
	Skip                // the filter lets it pass: done
	Stop                // end here; this message stays as it is
)

// Plan finds what a receive may have of a queue: first the messages that came back (as of the last
// Advance), lowest offset first, then new ones, from next up to end (exclusive). It asks match about
// each until max were taken, and appends to dst the items of the lease record that would hand them
// out; skipped ones are items too. It changes nothing, and match must not. What the group passed over
// while it was ordered goes out before new ones. Nothing is found in a queue that is ordered now: see
// PlanOrdered.
func (t *Table) Plan(k Key, end record.QueueOffset, max int, match func(off record.QueueOffset) Verdict, dst []record.PopItem) []record.PopItem {
	q := t.queueOf(k)
	if q == nil || max <= 0 || q.ordered {
		return dst
	}
	before := len(dst)
	for p := t.readyPage(q, 0); p != nil; p = t.readyPage(q, p.no+1) {
		for set := p.ready; set != 0; set &= set - 1 {
			s := t.spotIn(q, p, lowest(set))
			item := record.PopItem{Offset: record.QueueOffset(s.offset()), Prev: -1}
			switch match(item.Offset) {
			case Stop:
				return dst
			case Take:
				item.Attempt, item.Prev = s.node.nextAttempt(), s.node.lease()
				max--
			}
			dst = append(dst, item)
			if max == 0 {
				return dst
			}
		}
	}
	if q.locks != nil {
		p := planning{t: t, q: q, match: match, max: max, items: dst}
		goOn := p.left()
		slices.SortFunc(p.items[before:], func(a, b record.PopItem) int { return int(a.Offset - b.Offset) })
		if dst, max = p.items, p.max; !goOn {
			return dst
		}
	}
	for off := record.QueueOffset(q.next); off < end; off++ {
		item := record.PopItem{Offset: off, Prev: -1}
		switch match(off) {
		case Stop:
			return dst
		case Take:
			item.Attempt = 1
			max--
		}
		dst = append(dst, item)
		if max == 0 {
			return dst
		}
	}
	return dst
}
