package filter

import (
	"container/list"
	"sync"
)

// Cache keeps the filters that were used last, by their text. It is safe for concurrent use.
type Cache struct {
	most int

	mu     sync.Mutex
	byText map[string]*list.Element
	recent *list.List // of *cached, the one used last in front
}

type cached struct {
	text string
	sql  *SQL
}

// NewCache returns a cache of at most this many filters.
func NewCache(most int) *Cache {
	return &Cache{most: most, byText: map[string]*list.Element{}, recent: list.New()}
}

// Get returns the filter with this text. Its error is that of Compile; what is wrong is not kept.
func (c *Cache) Get(text string) (*SQL, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byText[text]; e != nil {
		c.recent.MoveToFront(e)
		return e.Value.(*cached).sql, nil //nolint:forcetypeassert // nothing else is in it
	}
	sql, err := Compile(text)
	if err != nil {
		return nil, err
	}
	c.byText[text] = c.recent.PushFront(&cached{text, sql})
	if c.recent.Len() > c.most {
		last := c.recent.Remove(c.recent.Back()).(*cached) //nolint:forcetypeassert // nothing else is in it
		delete(c.byText, last.text)
	}
	return sql, nil
}

// Len is how many filters are kept.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Len()
}
