package timer

import (
	"slices"
	"sort"
)

// tree is an ordered set of entries: leaves in order, none of them empty. Leaves that lose most of their
// entries are joined with a neighbour, so that memory follows the number of entries.
type tree struct {
	leaves []*leaf
	n      int
}

// find returns the leaf in which k is or would be.
func (t *tree) find(k key) int {
	return sort.Search(max(len(t.leaves)-1, 0), func(i int) bool { return k.less(t.leaves[i+1].first()) })
}

// insert adds an entry; false if there is one with its key.
func (t *tree) insert(e *Entry) bool {
	k := key{e.Due, e.Pos}
	if len(t.leaves) == 0 {
		t.leaves = append(t.leaves, new(leaf))
	}
	at := t.find(k)
	l := t.leaves[at]
	i, there := l.search(k)
	if there {
		return false
	}
	if l.len() >= leafMax {
		if at == len(t.leaves)-1 && i == l.len() {
			l, i = new(leaf), 0
			t.leaves = append(t.leaves, l)
		} else {
			right := l.split()
			t.leaves = slices.Insert(t.leaves, at+1, right)
			if n := l.len(); i > n {
				l, i = right, i-n
			}
		}
	}
	l.insert(i, e)
	t.n++
	return true
}

// get returns the entry with a key.
func (t *tree) get(k key) (Entry, bool) {
	if t.n == 0 {
		return Entry{}, false
	}
	l := t.leaves[t.find(k)]
	i, there := l.search(k)
	if !there {
		return Entry{}, false
	}
	return entryAt(l.at(i)), true
}

// remove takes the entry with a key out; false if there is none.
func (t *tree) remove(k key) (Entry, bool) {
	if t.n == 0 {
		return Entry{}, false
	}
	at := t.find(k)
	l := t.leaves[at]
	i, there := l.search(k)
	if !there {
		return Entry{}, false
	}
	e := entryAt(l.at(i))
	l.remove(i)
	t.n--
	switch {
	case l.len() == 0:
		t.leaves = slices.Delete(t.leaves, at, at+1)
	case l.len() < leafMax/4:
		t.join(at)
	}
	return e, true
}

// join puts a small leaf and a neighbour into one, if they fill no more than half of it. The first leaf
// is left alone, since deliveries empty it anyway.
func (t *tree) join(at int) {
	if at+1 == len(t.leaves) {
		at--
	}
	if at < 1 {
		return
	}
	l, right := t.leaves[at], t.leaves[at+1]
	if l.len()+right.len() > leafMax/2 {
		return
	}
	both := sized(len(l.data)+len(right.data), 0)
	copy(both[copy(both, l.data):], right.data)
	l.data, l.shared = both, false
	t.leaves = slices.Delete(t.leaves, at+1, at+2)
}

// front is the entry with the least key of a tree that has one.
func (t *tree) front() Entry { return entryAt(t.leaves[0].data) }

// pop takes the entry with the least key out of a tree that has one.
func (t *tree) pop() {
	l := t.leaves[0]
	l.data = l.data[entryBytes:]
	t.n--
	if l.len() == 0 {
		t.leaves[0] = nil
		t.leaves = t.leaves[1:]
	}
	if t.n == 0 {
		t.leaves = nil
	}
}

// load fills an empty tree with encoded entries; false if they do not rise strictly.
func (t *tree) load(b []byte) bool {
	const bytes = leafMax * 7 / 8 * entryBytes
	last := key{due: -1 << 63}
	for len(b) > 0 {
		n := min(len(b), bytes)
		if !ordered(b[:n], last) {
			return false
		}
		l := &leaf{data: clone(b[:n])}
		last = l.last()
		t.leaves = append(t.leaves, l)
		t.n += l.len()
		b = b[n:]
	}
	return true
}

// share appends the encoded entries to parts; their bytes stay as they are.
func (t *tree) share(parts [][]byte) [][]byte {
	for _, l := range t.leaves {
		l.shared = true
		parts = append(parts, slices.Clip(l.data))
	}
	return parts
}
