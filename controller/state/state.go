// Package state is what the controller knows for certain: the cluster's id, topics, groups, broker
// groups (shards) with their epochs and SyncStateSets, and the keys of receipt handles.
//
// It is a pure state machine: Apply takes a command and answers with a result and events, and every
// node that applies the same commands in the same order has the same state. There is no clock, no
// file, no goroutine and no chance in it: times, keys and ids that need them are in the commands.
// A command that does not fit the state is refused and changes nothing but the version.
//
// Topics, groups and shards are never changed in place: a change puts a new value there, so values
// that were handed out stay valid for as long as somebody holds them.
package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// The numbers of the controller. Ids start at 1 and are never used twice, not even after a delete.
type (
	// TopicID names a topic.
	TopicID uint32
	// GroupID names a consumer group.
	GroupID uint32
	// ShardID names a broker group.
	ShardID uint32
	// ReplicaID is given by the operator and unique in its shard.
	ReplicaID uint32
	// Epoch is the term of a master. It only grows.
	Epoch uint64
	// Version is the Raft index of a command.
	Version uint64
	// Incarnation is the Raft index of a registration: one run of one broker process.
	Incarnation uint64
)

// Bounds on what the state holds.
const (
	TopicsMax   = 100_000
	GroupsMax   = 100_000
	ShardsMax   = 1024
	ReplicasMax = 64 // of one shard
	QueuesMax   = 4096
)

// State is the controller's state. It is not safe for concurrent use.
//
// Invariants (Check): names are unique; ids are below the next ids; placements are sorted by shard
// and name existing shards; a master is a replica of its shard with its current incarnation, and a
// member of the SyncStateSet.
type State struct {
	cluster     string  // "" before Init
	version     Version // last applied command
	definitions Version // last command that changed a topic or a group
	nextTopic   TopicID
	nextGroup   GroupID
	nextShard   ShardID

	topics     map[TopicID]*Topic
	topicNames map[string]TopicID
	groups     map[GroupID]*Group
	groupNames map[string]GroupID
	shards     map[ShardID]*Shard
	shardNames map[string]ShardID
	keys       Keys

	controllers map[string]Controller
	gone        []UUID // directories of controllers that were removed, the latest last

	ended      map[string]Ended // deleted shards, by name
	generation uint16           // how often the state was put back
}

// New returns the empty state.
func New() *State {
	return &State{
		nextTopic: 1, nextGroup: 1, nextShard: 1,
		topics: map[TopicID]*Topic{}, topicNames: map[string]TopicID{},
		groups: map[GroupID]*Group{}, groupNames: map[string]GroupID{},
		shards: map[ShardID]*Shard{}, shardNames: map[string]ShardID{},
		controllers: map[string]Controller{}, ended: map[string]Ended{},
	}
}

// Command is a change that is asked for. The implementations are in this package.
type Command interface {
	op() string
	apply(s *State, index Version) (Result, []Event)
}

// Result is what came of a command. Err is a refusal: nothing was changed.
type Result struct {
	Err     error
	Topic   *Topic // of PutTopic, and of DeleteTopic as it was
	Group   *Group // of PutGroup, and of DeleteGroup as it was
	Shard   *Shard // of the commands about shards, as it is now
	Created bool
	Changed bool
	Version Version // the command's index
}

func refuse(k mqerr.Kind, format string, args ...any) (Result, []Event) {
	return Result{Err: mqerr.New(k, format, args...)}, nil
}

// Apply carries out a command that has this Raft index. Indexes must rise.
func (s *State) Apply(index Version, c Command) (Result, []Event) {
	if index <= s.version {
		return refuse(mqerr.Internal, "command %d after %d", index, s.version)
	}
	s.version = index
	r, events := c.apply(s, index)
	r.Version = index
	return r, events
}

// Init gives a new cluster its id and its first key. It does nothing to a cluster that has them.
type Init struct {
	Cluster string `json:"cluster"`
	Key     Secret `json:"key"`
	NowMS   int64  `json:"now_ms"`
}

func (Init) op() string { return "init" }

func (c Init) apply(s *State, _ Version) (Result, []Event) {
	if s.cluster != "" {
		return Result{}, nil
	}
	if c.Cluster == "" {
		return refuse(mqerr.Invalid, "a cluster needs an id")
	}
	s.cluster = c.Cluster
	s.keys = Keys{{ID: 1, Secret: c.Key, AddedMS: c.NowMS, Role: KeyCurrent}}
	return Result{Changed: true}, []Event{KeysChanged{Keys: s.keys}}
}

// Cluster returns the cluster's id, empty before Init.
func (s *State) Cluster() string { return s.cluster }

// Version is the index of the last command that was applied, refused ones included.
func (s *State) Version() Version { return s.version }

// Definitions is the index of the last command that changed a topic or a group.
func (s *State) Definitions() Version { return s.definitions }

// Keys returns the keys of receipt handles. It must not be changed.
func (s *State) Keys() Keys { return s.keys }

// Topic returns a topic by name, nil if there is none.
func (s *State) Topic(name string) *Topic { return s.topics[s.topicNames[name]] }

// Group returns a group by name, nil if there is none.
func (s *State) Group(name string) *Group { return s.groups[s.groupNames[name]] }

// Shard returns a shard, nil if there is none.
func (s *State) Shard(id ShardID) *Shard { return s.shards[id] }

// ShardNamed returns a shard by name, nil if there is none.
func (s *State) ShardNamed(name string) *Shard { return s.shards[s.shardNames[name]] }

// Topics returns the topics by id.
func (s *State) Topics() []*Topic { return sorted(s.topics) }

// Groups returns the groups by id.
func (s *State) Groups() []*Group { return sorted(s.groups) }

// Shards returns the shards by id.
func (s *State) Shards() []*Shard { return sorted(s.shards) }

// Len returns the numbers of topics, groups and shards.
func (s *State) Len() (topics, groups, shards int) {
	return len(s.topics), len(s.groups), len(s.shards)
}

func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	all := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}

// Clone returns a copy that later commands do not touch. It copies pointers only.
func (s *State) Clone() *State {
	c := *s
	c.topics, c.topicNames = maps.Clone(s.topics), maps.Clone(s.topicNames)
	c.groups, c.groupNames = maps.Clone(s.groups), maps.Clone(s.groupNames)
	c.shards, c.shardNames = maps.Clone(s.shards), maps.Clone(s.shardNames)
	c.controllers, c.ended = maps.Clone(s.controllers), maps.Clone(s.ended)
	return &c
}

// Check returns the first invariant that does not hold.
func (s *State) Check() error {
	if len(s.topics) != len(s.topicNames) || len(s.groups) != len(s.groupNames) || len(s.shards) != len(s.shardNames) {
		return fmt.Errorf("a name stands for two things, or for none")
	}
	if s.definitions > s.version {
		return fmt.Errorf("definitions are at version %d, the state at %d", s.definitions, s.version)
	}
	for id, t := range s.topics {
		if t.ID != id || id == 0 || id >= s.nextTopic || s.topicNames[t.Name] != id || t.Version > s.definitions {
			return fmt.Errorf("topic %d (%q): wrong id, name or version", id, t.Name)
		}
		if err := t.check(s); err != nil {
			return err
		}
	}
	for id, g := range s.groups {
		if g.ID != id || id == 0 || id >= s.nextGroup || s.groupNames[g.Name] != id || g.Version > s.definitions {
			return fmt.Errorf("group %d (%q): wrong id, name or version", id, g.Name)
		}
		if g.MaxAttempts < 1 {
			return fmt.Errorf("group %q has no attempts", g.Name)
		}
	}
	for id, h := range s.shards {
		if h.ID != id || id == 0 || id >= s.nextShard || s.shardNames[h.Name] != id {
			return fmt.Errorf("shard %d (%q): wrong id or name", id, h.Name)
		}
		if err := h.check(); err != nil {
			return err
		}
	}
	for name, e := range s.ended {
		if e.Name != name || name == "" || s.shardNames[name] != 0 || len(s.ended) > EndedMax {
			return fmt.Errorf("deleted shard %q: wrong name, or it exists", name)
		}
	}
	if err := s.checkControllers(); err != nil {
		return err
	}
	return s.keys.check(s.cluster != "")
}
