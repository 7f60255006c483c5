// Package offset is where pull consumers stand: for each group and queue the offset of the next message
// to read, as OFFSET records say.
//
// It is a pure core: the same records give the same table, byte for byte (Encode). The position of a
// group that receives instead of pulling is not here but in the in-flight table (broker/pop).
package offset

import (
	"cmp"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Key names a queue as one group sees it.
type Key struct {
	Group record.GroupID
	Topic record.TopicID
	Queue record.QueueID
}

// Compare orders keys by group, then topic, then queue.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Group, o.Group), cmp.Compare(k.Topic, o.Topic), cmp.Compare(k.Queue, o.Queue))
}

// Table holds the positions of all pull consumers of a broker. It is not safe for concurrent use.
//
// Invariant: no position is negative.
type Table struct {
	at     map[Key]record.QueueOffset
	groups readers
}

// New returns an empty table.
func New() *Table { return &Table{at: map[Key]record.QueueOffset{}, groups: readers{}} }

// readers counts the positions of each group on each topic.
type readers map[record.TopicID]map[record.GroupID]int

func (r readers) add(k Key, n int) {
	groups := r[k.Topic]
	if groups == nil {
		groups = map[record.GroupID]int{}
		r[k.Topic] = groups
	}
	if groups[k.Group] += n; groups[k.Group] == 0 {
		delete(groups, k.Group)
	}
	if len(groups) == 0 {
		delete(r, k.Topic)
	}
}

// AppendGroups appends the groups with a position on a topic, in order.
func (t *Table) AppendGroups(dst []record.GroupID, topic record.TopicID) []record.GroupID {
	begin := len(dst)
	for g := range t.groups[topic] {
		dst = append(dst, g)
	}
	slices.Sort(dst[begin:])
	return dst
}

// Get returns the position of a group in a queue, false if none was stored.
func (t *Table) Get(k Key) (record.QueueOffset, bool) {
	off, ok := t.at[k]
	return off, ok
}

// Len is the number of positions.
func (t *Table) Len() int { return len(t.at) }

// Apply takes one item of an OFFSET record. A reset moves a position that is there and makes none: a
// group that only receives has its position in the in-flight table.
func (t *Table) Apply(it *record.OffsetItem) error {
	if it.Offset < 0 || it.Queue < 0 {
		return mqerr.New(mqerr.Corrupt, "position %d of group %d in queue %d of topic %d", it.Offset, it.Group, it.Queue, it.Topic)
	}
	k := Key{it.Group, it.Topic, it.Queue}
	switch it.Kind {
	case record.OffsetPull:
		if _, stored := t.at[k]; !stored {
			t.groups.add(k, 1)
		}
		t.at[k] = it.Offset
	case record.OffsetReset:
		if _, stored := t.at[k]; stored {
			t.at[k] = it.Offset
		}
	default:
		return mqerr.New(mqerr.Unsupported, "OFFSET record of kind %d: start the release of perigee that wrote it", it.Kind)
	}
	return nil
}

// DropTopic forgets the positions in a deleted topic.
func (t *Table) DropTopic(id record.TopicID) {
	t.drop(func(k Key) bool { return k.Topic == id })
}

// DropGroup forgets the positions of a deleted group.
func (t *Table) DropGroup(id record.GroupID) {
	t.drop(func(k Key) bool { return k.Group == id })
}

func (t *Table) drop(which func(Key) bool) {
	for k := range t.at {
		if which(k) {
			delete(t.at, k)
			t.groups.add(k, -1)
		}
	}
}

// keys returns all keys in order.
func (t *Table) keys() []Key {
	all := make([]Key, 0, len(t.at))
	for k := range t.at {
		all = append(all, k)
	}
	slices.SortFunc(all, Key.Compare)
	return all
}

// Each calls fn for all positions, in no order. fn must not change the table.
func (t *Table) Each(fn func(k Key, at record.QueueOffset)) {
	for k, at := range t.at {
		fn(k, at)
	}
}
