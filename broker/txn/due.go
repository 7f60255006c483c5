package txn

import "github.com/perigee-mq/perigee/store/record"

// due are the half messages of one topic: a heap by next check, then position.
type due struct {
	heap    []int32
	grouped int // of them, those with a message group
}

func (t *Table) less(a, b int32) bool {
	x, y := &t.slots[a], &t.slots[b]
	return x.Next < y.Next || x.Next == y.Next && x.Pos < y.Pos
}

func (t *Table) put(d *due, at int32, s int32) {
	d.heap[at] = s
	t.slots[s].at = at
}

func (t *Table) push(d *due, s int32) {
	d.heap = append(d.heap, s)
	t.slots[s].at = int32(len(d.heap) - 1)
	t.up(d, int32(len(d.heap)-1))
}

// pull takes the entry at an index out; a topic without half messages is forgotten.
func (t *Table) pull(topic record.TopicID, at int32) {
	d := t.topics[topic]
	last := int32(len(d.heap) - 1)
	moved := d.heap[last]
	d.heap = d.heap[:last]
	if last == 0 {
		delete(t.topics, topic)
		return
	}
	if at != last {
		t.put(d, at, moved)
		t.moved(d, at)
	}
}

// moved restores the order after the entry at an index has changed.
func (t *Table) moved(d *due, at int32) {
	if !t.up(d, at) {
		t.down(d, at)
	}
}

func (t *Table) up(d *due, at int32) bool {
	s, from := d.heap[at], at
	for at > 0 {
		parent := (at - 1) / 2
		if !t.less(s, d.heap[parent]) {
			break
		}
		t.put(d, at, d.heap[parent])
		at = parent
	}
	t.put(d, at, s)
	return at != from
}

func (t *Table) down(d *due, at int32) {
	s, n := d.heap[at], int32(len(d.heap))
	for {
		child := 2*at + 1
		if child >= n {
			break
		}
		if child+1 < n && t.less(d.heap[child+1], d.heap[child]) {
			child++
		}
		if !t.less(d.heap[child], s) {
			break
		}
		t.put(d, at, d.heap[child])
		at = child
	}
	t.put(d, at, s)
}

// First returns the half message of a topic whose next check comes first.
func (t *Table) First(topic record.TopicID) (Half, bool) {
	d := t.topics[topic]
	if d == nil {
		return Half{}, false
	}
	return t.slots[d.heap[0]].Half, true
}

// Count is the number of open half messages of a topic.
func (t *Table) Count(topic record.TopicID) int {
	if d := t.topics[topic]; d != nil {
		return len(d.heap)
	}
	return 0
}

// EachTopic calls f for every topic that has open half messages, in no order. f must not change the table.
func (t *Table) EachTopic(f func(topic record.TopicID)) {
	for id := range t.topics {
		f(id)
	}
}

// Oldest returns the open half message that was stored first.
func (t *Table) Oldest() (Half, bool) {
	if t.first == none {
		return Half{}, false
	}
	return t.slots[t.first].Half, true
}
