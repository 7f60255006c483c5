package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// clock is the boot-time clock of one machine: it has its own origin, and runs too fast or too slow.
type clock struct {
	origin time.Duration
	ppm    int64
}

func (c clock) at(real time.Duration) time.Duration {
	return c.origin + real + time.Duration(int64(real)/1_000_000*c.ppm)
}

// world is one group: masters that ask, leaders that grant and replace. Answers take as long as they like.
type world struct {
	t     *rapid.T
	now   time.Duration // real time
	terms Terms
	nodes []*node
	book  *Book[int] // of the leader
	lead  clock      // of the leader
	since int        // counts leaderships
	epoch int
}

type node struct {
	clock
	Holder
	epoch int // that it believes to lead, 0: none
}

// I16: at no time do two replicas hold a lease, though none of them hears of the end of its mastership.
func TestOneHolder(t *testing.T) {
	replaced, held := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ppm := func(label string) clock {
			return clock{time.Duration(rapid.Int64Range(0, 1e15).Draw(t, label+" origin")), rapid.Int64Range(-driftPercent*10_000, driftPercent*10_000).Draw(t, label+" rate")}
		}
		w := &world{t: t, terms: Terms{}.withDefaults()}
		for range 3 {
			w.nodes = append(w.nodes, &node{clock: ppm("node")})
		}
		takeOver := func() {
			w.lead, w.since = ppm("leader"), w.since+1
			w.book = NewBook[int](w.terms, w.lead.at(w.now))
		}
		takeOver()
		w.epoch, w.nodes[0].epoch = 1, 1
		master := 0
		type question struct {
			from, epoch int
			number      uint64
		}
		type answer struct {
			question
			length time.Duration
		}
		var questions []question
		var answers []answer
		pick := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(t, label) }
		// round asks, grants and answers at once: the shortest way to a lease.
		round := func(i int) {
			n := w.nodes[i]
			if number := n.Ask(n.at(w.now)); n.epoch == w.epoch {
				n.Granted(number, w.book.Grant(1, w.lead.at(w.now)))
			}
		}
		for range rapid.IntRange(100, 300).Draw(t, "steps") {
			switch pick("step", 10) {
			case 8, 9:
				if i := pick("round", len(w.nodes)); w.nodes[i].epoch != 0 {
					round(i)
				}
			case 0, 1:
				w.now += time.Duration(rapid.IntRange(0, 800).Draw(t, "ms")) * time.Millisecond
			case 2, 3:
				if i := pick("asks", len(w.nodes)); w.nodes[i].epoch != 0 {
					n := w.nodes[i]
					questions = append(questions, question{i, n.epoch, n.Ask(n.at(w.now))})
				}
			case 4:
				if len(questions) > 0 { // any of them, also an old one
					q := questions[pick("question", len(questions))]
					if q.epoch == w.epoch {
						answers = append(answers, answer{q, w.book.Grant(1, w.lead.at(w.now))})
					}
				}
			case 5:
				if len(answers) > 0 {
					a := answers[pick("answer", len(answers))]
					if n := w.nodes[a.from]; n.epoch == a.epoch {
						n.Granted(a.number, a.length)
					}
				}
			case 6:
				if w.lead.at(w.now) >= w.book.Free(1) {
					replaced++
					w.epoch++
					master = (master + 1 + pick("winner", len(w.nodes)-1)) % len(w.nodes)
					w.nodes[master].Drop()
					w.nodes[master].epoch = w.epoch // the others don't hear of it
					round(master)
				}
			case 7:
				if pick("leader changes", 3) == 0 {
					takeOver()
				}
			}
			holders := 0
			for _, n := range w.nodes {
				if n.Valid(n.at(w.now)) {
					holders++
				}
			}
			held += holders
			if holders > 1 {
				t.Fatalf("%d replicas hold a lease", holders)
			}
		}
	})
	if replaced == 0 || held == 0 {
		t.Fatalf("the walks get nowhere: %d masters replaced, %d times a lease was held", replaced, held)
	}
}

func TestHolder(t *testing.T) {
	const held = 3*time.Second - 30*time.Millisecond - 200*time.Millisecond
	var h Holder
	if h.Valid(0) {
		t.Error("nothing was granted")
	}
	first, second := h.Ask(10*time.Second), h.Ask(11*time.Second)
	h.Granted(second, 3*time.Second)
	h.Granted(first, 3*time.Second) // late, and says less
	h.Granted(77, time.Hour)
	if until, ok := h.Until(); !ok || until != 11*time.Second+held {
		t.Errorf("until %v", until)
	}
	if !h.Valid(11*time.Second+held-1) || h.Valid(11*time.Second+held) {
		t.Error("a lease ends when it ends")
	}
	h.Drop()
	if h.Valid(11 * time.Second) {
		t.Error("it was given up")
	}
	for range 3 * asksMax {
		h.Ask(12 * time.Second)
	}
	if len(h.asks) != asksMax {
		t.Errorf("%d questions are kept", len(h.asks))
	}
}

func TestBook(t *testing.T) {
	b := NewBook[int](Terms{}, 100*time.Second)
	if free := b.Free(1); free != 103030*time.Millisecond {
		t.Errorf("a new leader waits until %v for leases that it can't see", free)
	}
	if _, ok := b.Granted(1, 101*time.Second); ok {
		t.Error("nothing was granted")
	}
	b.Grant(1, 110*time.Second)
	if age, ok := b.Granted(1, 112*time.Second); !ok || age != 2*time.Second || b.Free(1) != 113030*time.Millisecond || b.Held(112*time.Second) != 1 {
		t.Errorf("granted %v ago, free at %v", age, b.Free(1))
	}
	if b.Held(114*time.Second) != 0 {
		t.Error("it is over")
	}
}
