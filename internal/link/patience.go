package link

import "time"

// looks is how often in a KeepAlive it is looked whether something came.
const looks = 2

// patience judges the silence of a peer. It counts looks instead of time: a look that comes late says that
// this process stood still, and what the peer sent meanwhile may not be read yet. So no silence counts that
// this side has slept through, and after it the peer has a whole look's time to be heard.
type patience struct {
	step   time.Duration // between looks
	next   time.Time     // when to look again
	silent int           // looks on time, one after another, since which nothing came
	turn   int           // looks since the last sign of life
}

func newPatience(keepAlive time.Duration, now time.Time) patience {
	step := max(1, keepAlive/looks)
	return patience{step: step, next: now.Add(step)}
}

// look takes what is seen now, at or after next: whether something came since the look before. It returns whether
// to give a sign of life, whether to ask the peer for one, and whether the peer must be taken for dead.
func (p *patience) look(now time.Time, heard bool) (sign, ask, dead bool) {
	late := now.Sub(p.next) >= p.step
	p.next = now.Add(p.step)
	switch {
	case heard:
		p.silent = 0
	case !late:
		p.silent++
	}
	ask = p.silent >= looks || late && !heard
	if p.turn++; p.turn == looks || ask {
		sign, p.turn = true, 0
	}
	return sign, ask, p.silent >= 2*looks
}
