package pop

// frontier is a heap of what comes next, the lowest offset first: locks of a heap (locks.free) whose
// parents were taken, so that it goes through that heap in order and leaves it as it is.
type frontier []ahead

type ahead struct {
	off int64
	at  int  // index in locks.free
	w   walk // or a walk through a lock that was taken from there
}

// index adds one lock, if it exists.
func (h *frontier) index(free []freeLock, i int) {
	if i < len(free) {
		h.push(ahead{off: free[i].off, at: i})
	}
}

func (h *frontier) children(free []freeLock, i int) {
	h.index(free, 2*i+1)
	h.index(free, 2*i+2)
}

func (h *frontier) push(a ahead) {
	s := append(*h, a)
	c := len(s) - 1
	for c > 0 && s[c].off < s[(c-1)/2].off {
		s[c], s[(c-1)/2] = s[(c-1)/2], s[c]
		c = (c - 1) / 2
	}
	*h = s
}

func (h *frontier) pop() ahead {
	s := *h
	top := s[0]
	last := len(s) - 1
	s[0] = s[last]
	s[last] = ahead{}
	s = s[:last]
	*h = s
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < last && s[c+1].off < s[c].off {
			c++
		}
		if c >= last || s[i].off <= s[c].off {
			return top
		}
		s[i], s[c] = s[c], s[i]
		i = c
	}
}
