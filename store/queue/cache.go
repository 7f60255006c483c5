package queue

import "sync"

// cache keeps extents that were read, in a fixed number of slots; the slot that was not used for the
// longest time, roughly, is given to the next extent (second chance). Slots get their memory at first use.
type cache struct {
	mu           sync.Mutex
	slots        []cacheSlot
	at           map[uint32]int // extent number to slot
	hand         int
	hits, misses int64
}

type cacheSlot struct {
	extent  uint32
	count   int // entries that were checked; 0: empty
	recent  bool
	loading bool // belongs to the reader that fills it
	data    *[ExtentBytes]byte
}

func newCache(size int) *cache {
	return &cache{slots: make([]cacheSlot, max(size/ExtentBytes, 8)), at: map[uint32]int{}}
}

// read decodes entries of extent x from index i on into dst and returns how many. It reads and checks the
// extent if it is not cached. Nobody may write to x meanwhile.
func (c *cache) read(f *files, x uint32, want *extentHead, i int, dst []Entry) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.at[x]
	if ok && c.slots[s].count >= want.count {
		c.hits++
		c.slots[s].recent = true
		return getAll(dst, c.slots[s].entries(i, want.count)), nil
	}
	c.misses++
	s = c.takeLocked(x)
	if s < 0 { // more readers than slots
		one := cacheSlot{data: new([ExtentBytes]byte), count: want.count}
		c.mu.Unlock()
		err := f.read(x, one.data[:], want)
		c.mu.Lock()
		if err != nil {
			return 0, err
		}
		return getAll(dst, one.entries(i, want.count)), nil
	}
	data := c.slots[s].data
	c.mu.Unlock()
	err := f.read(x, data[:], want)
	c.mu.Lock()
	slot := &c.slots[s]
	slot.loading = false
	if err != nil {
		return 0, err
	}
	if _, twice := c.at[x]; !twice {
		c.at[x] = s
		slot.extent, slot.count, slot.recent = x, want.count, true
	}
	return getAll(dst, slot.data[extentHeader+i*EntryBytes:extentHeader+want.count*EntryBytes]), nil
}

func (s *cacheSlot) entries(from, to int) []byte {
	return s.data[extentHeader+from*EntryBytes : extentHeader+to*EntryBytes]
}

// takeLocked empties a slot for extent x and marks it loading; -1 if all are.
func (c *cache) takeLocked(x uint32) int {
	if s, ok := c.at[x]; ok { // has fewer entries than needed
		c.emptyLocked(s)
	}
	for range 2 * len(c.slots) {
		s := c.hand
		c.hand = (c.hand + 1) % len(c.slots)
		slot := &c.slots[s]
		if slot.loading {
			continue
		}
		if slot.recent && slot.count > 0 {
			slot.recent = false
			continue
		}
		c.emptyLocked(s)
		slot.loading = true
		if slot.data == nil {
			slot.data = new([ExtentBytes]byte)
		}
		return s
	}
	return -1
}

func (c *cache) emptyLocked(s int) {
	if slot := &c.slots[s]; slot.count > 0 {
		delete(c.at, slot.extent)
		slot.count, slot.recent = 0, false
	}
}

// forget drops an extent that is written or given up.
func (c *cache) forget(x uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.at[x]; ok {
		c.emptyLocked(s)
	}
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.slots {
		c.emptyLocked(s)
	}
}

func (c *cache) counts() (hits, misses int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits, c.misses
}
