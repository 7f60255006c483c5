package state

// Event tells what a command changed, for those who follow the state.
type Event interface{ event() }

// TopicPut says that a topic was made or changed.
type TopicPut struct{ Topic *Topic }

// TopicDeleted says that a topic is gone; Topic is as it was.
type TopicDeleted struct {
	Topic   *Topic
	Version Version
}

// GroupPut says that a group was made or changed.
type GroupPut struct{ Group *Group }

// GroupDeleted says that a group is gone; Group is as it was.
type GroupDeleted struct {
	Group   *Group
	Version Version
}

// ShardChanged says that a shard was made or changed. Progress is set if only Applied moved.
type ShardChanged struct {
	Shard    *Shard
	Progress bool
}

// ShardDeleted says that a shard is gone; Shard is as it was.
type ShardDeleted struct{ Shard *Shard }

// ControllersChanged says that a controller announced itself or was removed.
type ControllersChanged struct{}

// KeysChanged says that the keys of receipt handles changed.
type KeysChanged struct{ Keys Keys }

func (TopicPut) event()     {}
func (TopicDeleted) event() {}
func (GroupPut) event()     {}
func (GroupDeleted) event() {}
func (ShardChanged) event() {}
func (ShardDeleted) event() {}
func (KeysChanged) event()  {}

func (ControllersChanged) event() {}
