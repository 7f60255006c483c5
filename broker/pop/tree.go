package pop

// branch is an inner node of a queue's tree of pages, a radix tree over page numbers: a branch of
// height h has the pages whose numbers agree in all bits above the lowest 6*h. The tree is as high
// as its lowest and highest page need, and holds nothing for pages that are done, so a window may be
// as wide as it likes. The root is never a branch with a single child.
type branch struct {
	children [64]uint32 // pages at height 1, branches above
	has      uint64     // children that exist
	ready    uint64     // children with a ready message; a subset of has
}

// pageHeightMax: page numbers have 57 bits.
const pageHeightMax = 10

// child returns the place of page no among the children of a branch of height h.
func child(no int64, h uint8) int { return int(no >> (6 * (h - 1)) & 63) }

// findPage returns page no of a queue, nil if it does not exist.
func (t *Table) findPage(q *queue, no int64) *page {
	if q.root == 0 || no>>(6*q.height) != q.prefix {
		return nil
	}
	id := q.root
	for h := q.height; h > 0; h-- {
		if id = t.branches.at(id).children[child(no, h)]; id == 0 {
			return nil
		}
	}
	return t.pages.at(id)
}

// makePage returns page no of a queue and its index; it is made if it does not exist.
func (t *Table) makePage(q *queue, no int64) (*page, uint32) {
	if q.root == 0 {
		p, id := t.newPage(q, no)
		q.root, q.height, q.prefix = id, 0, no
		return p, id
	}
	for no>>(6*q.height) != q.prefix {
		t.raise(q)
	}
	if q.height == 0 {
		return t.pages.at(q.root), q.root
	}
	id := q.root
	for h := q.height; ; h-- {
		b := t.branches.at(id)
		c := child(no, h)
		switch {
		case b.has>>c&1 != 0:
			id = b.children[c]
			if h == 1 {
				return t.pages.at(id), id
			}
		case h == 1:
			p, id := t.newPage(q, no)
			b.children[c] = id
			b.has |= 1 << c
			return p, id
		default:
			id = t.branches.alloc()
			b.children[c] = id
			b.has |= 1 << c
		}
	}
}

func (t *Table) newPage(q *queue, no int64) (*page, uint32) {
	id := t.pages.alloc()
	p := t.pages.at(id)
	p.no, p.queue = no, q.slot
	return p, id
}

// raise puts a branch above the root.
func (t *Table) raise(q *queue) {
	id := t.branches.alloc()
	b := t.branches.at(id)
	c := int(q.prefix & 63)
	b.children[c] = q.root
	b.has = 1 << c
	if q.ready > 0 {
		b.ready = 1 << c
	}
	q.root = id
	q.height++
	q.prefix >>= 6
}

// removePage frees a page, which must exist, and the branches that were there only for it.
func (t *Table) removePage(q *queue, no int64) {
	var path [pageHeightMax + 1]uint32
	id := q.root
	for h := q.height; h > 0; h-- {
		path[h] = id
		id = t.branches.at(id).children[child(no, h)]
	}
	t.pages.free(id)
	for h := uint8(1); h <= q.height; h++ {
		b := t.branches.at(path[h])
		c := child(no, h)
		b.children[c] = 0
		b.has &^= 1 << c
		b.ready &^= 1 << c
		if b.has != 0 {
			t.lower(q)
			return
		}
		t.branches.free(path[h])
	}
	q.root, q.height, q.prefix = 0, 0, 0
}

// lower takes away roots with a single child.
func (t *Table) lower(q *queue) {
	for q.height > 0 {
		b := t.branches.at(q.root)
		if b.has&(b.has-1) != 0 {
			return
		}
		c := lowest(b.has)
		id := b.children[c]
		t.branches.free(q.root)
		q.root = id
		q.height--
		q.prefix = q.prefix<<6 | int64(c)
	}
}

// markReady notes in the branches that page no has a ready message.
func (t *Table) markReady(q *queue, no int64) {
	id := q.root
	for h := q.height; h > 0; h-- {
		b := t.branches.at(id)
		b.ready |= 1 << child(no, h)
		id = b.children[child(no, h)]
	}
}

// unmarkReady notes that page no has no ready message any more.
func (t *Table) unmarkReady(q *queue, no int64) {
	var path [pageHeightMax + 1]uint32
	id := q.root
	for h := q.height; h > 0; h-- {
		path[h] = id
		id = t.branches.at(id).children[child(no, h)]
	}
	for h := uint8(1); h <= q.height; h++ {
		b := t.branches.at(path[h])
		if b.ready &^= 1 << child(no, h); b.ready != 0 {
			return
		}
	}
}

// floor is the lowest un-done offset of a queue, next if there is none. A passed-over message may be the
// lowest one only if its lock may go out: else there is an older one of its message group.
func (t *Table) floor(q *queue) int64 {
	floor := t.treeFloor(q)
	if q.locks != nil && len(q.locks.free) > 0 {
		floor = min(floor, q.locks.free[0].off)
	}
	return floor
}

func (t *Table) treeFloor(q *queue) int64 {
	if q.root == 0 {
		return q.next
	}
	id := q.root
	for h := q.height; h > 0; h-- {
		b := t.branches.at(id)
		id = b.children[lowest(b.has)]
	}
	p := t.pages.at(id)
	return p.first() + int64(lowest(p.live))
}

// readyPage returns the first page with a number of at least from that has a ready message, nil if
// there is none.
func (t *Table) readyPage(q *queue, from int64) *page {
	if q.ready == 0 {
		return nil
	}
	return t.seekReady(q.root, q.height, q.prefix, from)
}

// seekReady is readyPage below one node of the tree.
func (t *Table) seekReady(id uint32, h uint8, prefix, from int64) *page {
	if h == 0 {
		if p := t.pages.at(id); p.ready != 0 && p.no >= from {
			return p
		}
		return nil
	}
	b := t.branches.at(id)
	set := b.ready
	switch at := from >> (6 * h); {
	case at > prefix:
		return nil
	case at == prefix:
		set &= ^uint64(0) << child(from, h)
	}
	for ; set != 0; set &= set - 1 {
		c := lowest(set)
		if p := t.seekReady(b.children[c], h-1, prefix<<6|int64(c), from); p != nil {
			return p
		}
	}
	return nil
}

// eachPage calls fn for the pages of a queue in order. fn must not add or remove pages.
func (t *Table) eachPage(q *queue, fn func(*page)) {
	if q.root != 0 {
		t.walk(q.root, q.height, func(id uint32) { fn(t.pages.at(id)) }, func(uint32) {})
	}
}

// freeTree frees all pages, chunks, branches and locks of a queue.
func (t *Table) freeTree(q *queue) {
	defer t.freeLocks(q)
	if q.root == 0 {
		return
	}
	t.walk(q.root, q.height, func(id uint32) {
		for _, c := range t.pages.at(id).chunks {
			if c != 0 {
				t.freeChunk(c)
			}
		}
		t.pages.free(id)
	}, t.branches.free)
	q.root = 0
}

// walk calls visit for the pages below one node of the tree in order, and leave for each branch after
// what is below it.
func (t *Table) walk(id uint32, h uint8, visit, leave func(id uint32)) {
	if h == 0 {
		visit(id)
		return
	}
	b := t.branches.at(id)
	for set := b.has; set != 0; set &= set - 1 {
		t.walk(b.children[lowest(set)], h-1, visit, leave)
	}
	leave(id)
}
