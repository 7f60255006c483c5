package registry

import (
	"slices"

	"github.com/perigee-mq/perigee/controller/state"
)

// ShardView is a shard with what is known of its master at the moment.
type ShardView struct {
	*state.Shard
	// Live says that the master was heard from lately, and has logged every definition that existed
	// when its session began.
	Live bool
}

// Update is what a reader of definitions and routes has to learn.
type Update struct {
	// Full says that this is everything: what is not here does not exist.
	Full bool
	// Version: every definition up to it is in this or an earlier update, as far as the reader may see it.
	Version       state.Version
	Index         state.Version  // Raft index up to which commands are applied; for proxies only
	Topics        []*state.Topic // by version
	Groups        []*state.Group // by version
	DeletedTopics []state.TopicID
	DeletedGroups []state.GroupID
	Shards        []ShardView // by id; for proxies only
	Keys          state.Keys  // nil: unchanged; for proxies only

	// For brokers only: Bare says that there is nothing about definitions in it. Shard is the broker's own if it
	// has changed, HandOver comes with it: another replica is to be the master.
	Bare     bool
	Shard    *state.Shard
	HandOver bool
	Lease    *Grant
}

// add takes a thing of a feed; nil means that it is gone.
func (u *Update) add(k key, v any) {
	switch v := v.(type) {
	case *state.Topic:
		u.Topics = append(u.Topics, v)
	case *state.Group:
		u.Groups = append(u.Groups, v)
	case ShardView:
		u.Shards = append(u.Shards, v)
	case state.Keys:
		u.Keys = v
	default:
		switch k.kind {
		case kindTopic:
			u.DeletedTopics = append(u.DeletedTopics, state.TopicID(k.id))
		case kindGroup:
			u.DeletedGroups = append(u.DeletedGroups, state.GroupID(k.id))
		}
	}
}

func (u *Update) sort() {
	slices.SortFunc(u.Topics, func(a, b *state.Topic) int { return compare(a.Version, b.Version) })
	slices.SortFunc(u.Groups, func(a, b *state.Group) int { return compare(a.Version, b.Version) })
	slices.SortFunc(u.Shards, func(a, b ShardView) int { return compare(a.ID, b.ID) })
}

func compare[N ~uint32 | ~uint64](a, b N) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
