package link

import "time"

// deadlines is a heap of calls by deadline. A call knows its place, so that an answered one leaves at
// once instead of staying until its deadline.
type deadlines []*Call

// earliest is the first deadline, zero if there is none.
func (h deadlines) earliest() time.Time {
	if len(h) == 0 {
		return time.Time{}
	}
	return h[0].Deadline
}

func (h *deadlines) add(c *Call) {
	c.place = len(*h)
	*h = append(*h, c)
	h.up(c.place)
}

// remove takes c out, if it is in.
func (h *deadlines) remove(c *Call) {
	i, last := c.place, len(*h)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	c.place = -1
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h deadlines) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h deadlines) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h[i].Deadline.Before(h[parent].Deadline) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h deadlines) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].Deadline.Before(h[child].Deadline) {
			child++
		}
		if !h[child].Deadline.Before(h[i].Deadline) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
