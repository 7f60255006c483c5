package pop

import (
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// readers counts the known queues of each group on each topic.
type readers map[record.TopicID]map[record.GroupID]int

func (r readers) add(k Key) {
	groups := r[k.Topic]
	if groups == nil {
		groups = map[record.GroupID]int{}
		r[k.Topic] = groups
	}
	groups[k.Group]++
}

func (r readers) remove(k Key) {
	groups := r[k.Topic]
	if groups[k.Group]--; groups[k.Group] == 0 {
		delete(groups, k.Group)
	}
	if len(groups) == 0 {
		delete(r, k.Topic)
	}
}

// AppendGroups appends the groups that know a queue of a topic, in order.
func (t *Table) AppendGroups(dst []record.GroupID, topic record.TopicID) []record.GroupID {
	begin := len(dst)
	for g := range t.groups[topic] {
		dst = append(dst, g)
	}
	slices.Sort(dst[begin:])
	return dst
}
