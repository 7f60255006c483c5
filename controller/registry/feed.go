package registry

import "github.com/perigee-mq/perigee/controller/state"

// kind of a thing in a feed.
type kind uint8

const (
	kindTopic kind = iota
	kindGroup
	kindShard
	kindKeys
)

// key names a thing in a feed.
type key struct {
	kind kind
	id   uint32
}

func topicKey(id state.TopicID) key { return key{kindTopic, uint32(id)} }
func groupKey(id state.GroupID) key { return key{kindGroup, uint32(id)} }
func shardKey(id state.ShardID) key { return key{kindShard, uint32(id)} }

// feed is a table whose changes can be followed by many readers. The last changes stand in a ring
// that all readers share: whoever is further behind than the ring is long reads the whole table. So
// a slow reader costs nothing. The registry's lock guards it.
type feed struct {
	items map[key]any // *state.Topic, *state.Group, ShardView or state.Keys
	ring  []key
	head  uint64 // changes so far; the last len(ring) of them are in the ring
}

func newFeed(length int) *feed {
	return &feed{items: map[key]any{}, ring: make([]key, length)}
}

func (f *feed) put(k key, v any) {
	f.items[k] = v
	f.note(k)
}

func (f *feed) remove(k key) {
	if _, ok := f.items[k]; ok {
		delete(f.items, k)
		f.note(k)
	}
}

func (f *feed) note(k key) {
	f.ring[f.head%uint64(len(f.ring))] = k
	f.head++
}

// since calls fn once for each thing that changed after the first `from` changes, with its value now,
// nil if it is gone. It reports false if that is too long ago.
func (f *feed) since(from uint64, fn func(k key, v any)) bool {
	if f.head-from > uint64(len(f.ring)) {
		return false
	}
	seen := make(map[key]bool, f.head-from)
	for i := from; i < f.head; i++ {
		k := f.ring[i%uint64(len(f.ring))]
		if !seen[k] {
			seen[k] = true
			fn(k, f.items[k])
		}
	}
	return true
}

// restart makes every reader read the whole table.
func (f *feed) restart() { f.head += uint64(len(f.ring)) + 1 }

// all calls fn for each thing.
func (f *feed) all(fn func(k key, v any)) {
	for k, v := range f.items {
		fn(k, v)
	}
}
