package pop

import (
	"encoding/binary"
	"sort"
)

// passed is the passed-over messages of one message group, oldest first: runs of consecutive offsets.
// They are added at the end and taken from the front. Those between the first and the last run are
// encoded, so that ten million cost a byte or two each when they lie apart and next to nothing when
// they follow each other.
type passed struct {
	n          int64
	head, tail span    // tail is empty if all are in head
	blocks     []block // what is between head and tail
	at         int     // of blocks[0], how many bytes were read
	end        int64   // behind the last span in blocks
}

// span is n consecutive offsets.
type span struct{ first, n int64 }

func (s span) end() int64 { return s.first + s.n }

// block is encoded spans: uvarint gap*2 + 1 if there is more than one offset, less the end of the span
// before (base for the first); then uvarint n-2 if so.
type block struct {
	base int64
	b    []byte
}

const (
	blockMax = 512
	spanMax  = 2 * binary.MaxVarintLen64
)

// add appends offsets, all above those that are there.
func (p *passed) add(s span) {
	p.n += s.n
	switch {
	case p.n == s.n:
		p.head = s
	case p.tail.n == 0 && p.head.end() == s.first:
		p.head.n += s.n
	case p.tail.n == 0:
		p.tail = s
	case p.tail.end() == s.first:
		p.tail.n += s.n
	default:
		p.push(p.tail)
		p.tail = s
	}
}

// push moves a span into the blocks.
func (p *passed) push(s span) {
	if n := len(p.blocks); n == 0 || len(p.blocks[n-1].b)+spanMax > blockMax {
		p.blocks = append(p.blocks, block{base: s.first})
		p.end = s.first
	}
	last := &p.blocks[len(p.blocks)-1]
	last.b = appendSpan(last.b, p.end, s)
	p.end = s.end()
}

func appendSpan(dst []byte, end int64, s span) []byte {
	gap := uint64(s.first-end) << 1
	if s.n == 1 {
		return binary.AppendUvarint(dst, gap)
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, gap|1), uint64(s.n-2))
}

// readSpan reads a span that appendSpan wrote, and returns its length in bytes.
func readSpan(b []byte, end int64) (span, int) {
	gap, n := binary.Uvarint(b)
	s := span{end + int64(gap>>1), 1}
	if gap&1 != 0 {
		more, m := binary.Uvarint(b[n:])
		s.n += int64(more) + 1
		n += m
	}
	return s, n
}

// take removes the oldest one.
func (p *passed) take() { p.takeN(1) }

// takeN removes the n oldest ones, all of the first span.
func (p *passed) takeN(n int64) {
	p.n -= n
	p.head.first += n
	if p.head.n -= n; p.head.n > 0 {
		return
	}
	if len(p.blocks) == 0 {
		p.head, p.tail = p.tail, span{}
		return
	}
	b := &p.blocks[0]
	end := p.head.first
	if p.at == 0 {
		end = b.base
	}
	s, m := readSpan(b.b[p.at:], end)
	p.head = s
	if p.at += m; p.at == len(b.b) {
		*b = block{}
		p.blocks, p.at = p.blocks[1:], 0
		if len(p.blocks) == 0 {
			p.blocks = nil
		}
	}
}

// dropBelow removes those below off, and tells fn of each run. It returns how many these were.
func (p *passed) dropBelow(off int64, fn func(s span)) (dropped int64) {
	for p.n > 0 && p.head.first < off {
		s := span{p.head.first, min(p.head.n, off-p.head.first)}
		p.takeN(s.n)
		fn(s)
		dropped += s.n
	}
	return dropped
}

// has reports whether an offset is among them.
func (p *passed) has(off int64) bool {
	in := func(s span) bool { return off >= s.first && off < s.end() }
	if in(p.head) || in(p.tail) {
		return true
	}
	if off < p.head.end() {
		return false
	}
	i := sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].base > off }) - 1
	if i < 0 {
		return false
	}
	end := p.blocks[i].base
	for b := p.blocks[i].b; len(b) > 0; {
		s, n := readSpan(b, end)
		if off < s.end() {
			return off >= s.first
		}
		b, end = b[n:], s.end()
	}
	return false
}

// atLeast counts those at or above off.
func (p *passed) atLeast(off int64) int64 {
	n := int64(0)
	w := p.walk()
	for s, ok := w.nextSpan(); ok; s, ok = w.nextSpan() {
		n += min(s.n, max(0, s.end()-off))
	}
	return n
}

// walk goes through the offsets of a passed, oldest first. It must not change meanwhile.
type walk struct {
	p     *passed
	now   span
	gone  int64 // of now, how many next returned
	stage int   // 0 head, 1 blocks, 2 tail and end
	block int
	at    int
}

func (p *passed) walk() walk { return walk{p: p} }

// nextSpan returns the next span, false at the end.
func (w *walk) nextSpan() (span, bool) {
	switch w.stage {
	case 0:
		w.stage, w.at, w.now = 1, w.p.at, w.p.head
		return w.now, w.p.n > 0
	case 1:
		if w.block < len(w.p.blocks) {
			b := &w.p.blocks[w.block]
			end := w.now.end()
			if w.at == 0 {
				end = b.base
			}
			s, n := readSpan(b.b[w.at:], end)
			if w.at += n; w.at == len(b.b) {
				w.block, w.at = w.block+1, 0
			}
			w.now = s
			return s, true
		}
		w.stage, w.now = 2, w.p.tail
		return w.now, w.now.n > 0
	}
	return span{}, false
}

// next returns the next offset, false at the end.
func (w *walk) next() (int64, bool) {
	if w.gone == w.now.n {
		if _, ok := w.nextSpan(); !ok {
			return 0, false
		}
		w.gone = 0
	}
	w.gone++
	return w.now.first + w.gone - 1, true
}
