package route

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Update changes a Table. Entries replace what has their id.
type Update struct {
	// Full says that the topics and groups are the whole state: what is not named is gone.
	Full          bool
	Topics        []Topic
	Groups        []Group
	DeletedTopics []brokerapi.TopicID
	DeletedGroups []brokerapi.GroupID
	// Shards that changed, whole. A shard is never deleted.
	Shards []Shard
	// Keys are all keys of receipt handles, the one for new handles first; empty: no change.
	Keys []HandleKey
}

// Table is the routing table. The zero value is an empty one. It is safe for concurrent use.
type Table struct {
	mu      sync.Mutex // serialises Apply
	current atomic.Pointer[Snapshot]
}

// Snapshot is the table at one moment. It never changes; a nil one is empty.
type Snapshot struct {
	topics       map[string]*Topic
	topicsByID   map[brokerapi.TopicID]*Topic
	groups       map[string]*Group
	groupsByID   map[brokerapi.GroupID]*Group
	shards       map[brokerapi.ShardID]*Shard
	shardsByName map[string]*Shard
	keys         []HandleKey
	changed      chan struct{} // closed when a newer snapshot is there
}

// Load returns the table as it is now.
func (t *Table) Load() *Snapshot {
	if s := t.current.Load(); s != nil {
		return s
	}
	t.current.CompareAndSwap(nil, newSnapshot())
	return t.current.Load()
}

func newSnapshot() *Snapshot {
	return &Snapshot{
		topics:       map[string]*Topic{},
		topicsByID:   map[brokerapi.TopicID]*Topic{},
		groups:       map[string]*Group{},
		groupsByID:   map[brokerapi.GroupID]*Group{},
		shards:       map[brokerapi.ShardID]*Shard{},
		shardsByName: map[string]*Shard{},
		changed:      make(chan struct{}),
	}
}

// Apply puts an update into effect for all later calls of Load.
func (t *Table) Apply(u Update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.Load()
	s := old.copy(u)
	for i := range u.Topics {
		s.putTopic(u.Topics[i])
	}
	for _, id := range u.DeletedTopics {
		s.dropTopic(id)
	}
	for i := range u.Groups {
		s.putGroup(u.Groups[i])
	}
	for _, id := range u.DeletedGroups {
		s.dropGroup(id)
	}
	for i := range u.Shards {
		s.putShard(u.Shards[i])
	}
	if len(u.Keys) > 0 {
		s.keys = slices.Clone(u.Keys)
	}
	t.current.Store(s)
	close(old.changed)
}

// copy returns a snapshot with maps of its own where the update changes something.
func (s *Snapshot) copy(u Update) *Snapshot {
	n := *s
	n.changed = make(chan struct{})
	switch {
	case u.Full:
		n.topics, n.topicsByID = map[string]*Topic{}, map[brokerapi.TopicID]*Topic{}
		n.groups, n.groupsByID = map[string]*Group{}, map[brokerapi.GroupID]*Group{}
	default:
		if len(u.Topics)+len(u.DeletedTopics) > 0 {
			n.topics, n.topicsByID = maps.Clone(s.topics), maps.Clone(s.topicsByID)
		}
		if len(u.Groups)+len(u.DeletedGroups) > 0 {
			n.groups, n.groupsByID = maps.Clone(s.groups), maps.Clone(s.groupsByID)
		}
	}
	if len(u.Shards) > 0 {
		n.shards, n.shardsByName = maps.Clone(s.shards), maps.Clone(s.shardsByName)
	}
	return &n
}

func (s *Snapshot) putTopic(t Topic) {
	s.dropTopic(t.ID)
	t.Placements = slices.Clone(t.Placements)
	slices.SortFunc(t.Placements, func(a, b Placement) int { return cmp.Compare(a.Shard, b.Shard) })
	t.Queues = 0
	for _, p := range t.Placements {
		t.Queues += int(p.Queues)
	}
	s.topics[t.Name], s.topicsByID[t.ID] = &t, &t
}

// dropTopic removes a topic. Its name may belong to a newer one by now.
func (s *Snapshot) dropTopic(id brokerapi.TopicID) {
	old, ok := s.topicsByID[id]
	if !ok {
		return
	}
	delete(s.topicsByID, id)
	if s.topics[old.Name] == old {
		delete(s.topics, old.Name)
	}
}

func (s *Snapshot) putGroup(g Group) {
	s.dropGroup(g.ID)
	if g.MaxAttempts < 1 {
		g.MaxAttempts = DefaultMaxAttempts
	}
	g.Backoff = slices.Clone(g.Backoff)
	if len(g.Backoff) == 0 {
		g.Backoff = DefaultBackoff()
	}
	s.groups[g.Name], s.groupsByID[g.ID] = &g, &g
}

func (s *Snapshot) dropGroup(id brokerapi.GroupID) {
	old, ok := s.groupsByID[id]
	if !ok {
		return
	}
	delete(s.groupsByID, id)
	if s.groups[old.Name] == old {
		delete(s.groups, old.Name)
	}
}

func (s *Snapshot) putShard(sh Shard) {
	if old, ok := s.shards[sh.ID]; ok {
		delete(s.shardsByName, old.Name)
		if sh.Address == "" {
			sh.Address = old.Address // where it was last is the best guess for where it will be
		}
	}
	s.shards[sh.ID], s.shardsByName[sh.Name] = &sh, &sh
}

// Topic returns the topic of that name, nil if there is none.
func (s *Snapshot) Topic(name []byte) *Topic { return s.topics[string(name)] }

// TopicByID returns the topic with that id, nil if there is none.
func (s *Snapshot) TopicByID(id brokerapi.TopicID) *Topic { return s.topicsByID[id] }

// Group returns the group of that name, nil if there is none.
func (s *Snapshot) Group(name []byte) *Group { return s.groups[string(name)] }

// GroupByID returns the group with that id, nil if there is none.
func (s *Snapshot) GroupByID(id brokerapi.GroupID) *Group { return s.groupsByID[id] }

// Shard returns the shard with that id, nil if there is none.
func (s *Snapshot) Shard(id brokerapi.ShardID) *Shard { return s.shards[id] }

// ShardByName returns the shard whose broker name that is, nil if there is none.
func (s *Snapshot) ShardByName(name []byte) *Shard { return s.shardsByName[string(name)] }

// HandleKeys returns the keys of receipt handles, the one for new handles first.
func (s *Snapshot) HandleKeys() []HandleKey { return s.keys }

// Topics returns all topics, sorted by name.
func (s *Snapshot) Topics() []*Topic {
	return slices.SortedFunc(maps.Values(s.topics), func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
}

// Groups returns all groups, sorted by name.
func (s *Snapshot) Groups() []*Group {
	return slices.SortedFunc(maps.Values(s.groups), func(a, b *Group) int { return cmp.Compare(a.Name, b.Name) })
}

// Shards returns all shards, sorted by name.
func (s *Snapshot) Shards() []*Shard {
	return slices.SortedFunc(maps.Values(s.shards), func(a, b *Shard) int { return cmp.Compare(a.Name, b.Name) })
}

// Changed returns a channel that is closed when this snapshot is no longer the newest.
func (s *Snapshot) Changed() <-chan struct{} { return s.changed }

// WaitFor returns the first snapshot that is good, or the context's error.
func (t *Table) WaitFor(ctx context.Context, good func(*Snapshot) bool) (*Snapshot, error) {
	for {
		s := t.Load()
		if good(s) {
			return s, nil
		}
		select {
		case <-s.Changed():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
