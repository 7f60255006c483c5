// Package route is the routing table of a proxy: topics, groups, shards and the keys of the receipt
// handles, as the controller last told them.
//
// A Table is read without locks: readers load a snapshot that never changes, Apply puts a new one in
// its place. What is pointed to by a snapshot stays valid for as long as somebody holds it. While
// the controller cannot be reached the table stays as it was; silence never deletes a route.
package route

import (
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// TopicType is what kinds of messages a topic accepts; the numbers are the controller's.
type TopicType uint8

// Topic types.
const (
	Normal      TopicType = 1
	FIFO        TopicType = 2
	Delay       TopicType = 3
	Transaction TopicType = 4
	Lite        TopicType = 5
	Priority    TopicType = 6
	Mixed       TopicType = 7
)

// Accepts reports whether a topic of this type takes a message of type m. Mixed takes all.
func (t TopicType) Accepts(m brokerapi.MessageType) bool {
	return t == Mixed || uint8(t) == uint8(m)
}

// Advertised lists the message types that a route names, one byte each. For a mixed topic these are
// the four that every client knows.
func (t TopicType) Advertised() []byte {
	if t == Mixed {
		return advertised[:4]
	}
	if t >= Normal && t <= Priority {
		return advertised[t-1 : t]
	}
	return nil
}

var advertised = []byte{1, 2, 3, 4, 5, 6}

// Placement is the part of a topic that one shard serves: its queues 0 to Queues-1.
type Placement struct {
	Shard  brokerapi.ShardID
	Queues int32 // at least 1
}

// Topic is a topic as clients meet it.
type Topic struct {
	ID         brokerapi.TopicID
	Name       string
	Type       TopicType
	Placements []Placement // ordered by shard
	Layout     uint64      // version of the list of queues that message groups are spread over
	Queues     int         // sum over the placements; Apply fills it in
	Limits     Limits
}

// Limits are what a topic states instead of the proxy's own settings.
type Limits struct {
	MaxDelay time.Duration // from a send to the delivery time; 0: the setting
}

// QueueAt returns the queue at an index of the topic's list, 0 <= i < Queues: the placements in
// order, each with its queues in order.
func (t *Topic) QueueAt(i int) (brokerapi.ShardID, brokerapi.QueueID) {
	for _, p := range t.Placements {
		if i < int(p.Queues) {
			return p.Shard, brokerapi.QueueID(i)
		}
		i -= int(p.Queues)
	}
	panic("route: queue index beyond the topic's queues")
}

// HomeOf returns the queue of a message group, given its hash. It depends on the topic's list of
// queues and on nothing else.
func (t *Topic) HomeOf(groupHash uint64) (brokerapi.ShardID, brokerapi.QueueID) {
	return t.QueueAt(int(groupHash % uint64(t.Queues)))
}

// Group is a consumer group as clients meet it.
type Group struct {
	ID          brokerapi.GroupID
	Name        string
	Ordered     bool
	MaxAttempts int32           // deliveries of a message, at least 1
	Backoff     []time.Duration // before redelivery: entry n after delivery n, the last one from there on; never empty
	Growth      Growth          // how Backoff grows, if it is an exponential policy, else zero
	LiteTopic   string          // parent topic of a lite group, else empty
}

// Growth is an exponential retry policy: Initial * Multiplier^(n-1) after delivery n, at most Max.
type Growth struct {
	Initial, Max time.Duration
	Multiplier   float64 // 1 or more
}

// delaysMax bounds the delays of an exponential policy that are told as a list.
const delaysMax = 64

// Delays lists the delays up to the first that is Max, or to the last that attempts deliveries need; not
// more than 64.
func (g Growth) Delays(attempts int32) []time.Duration {
	var all []time.Duration
	for d := float64(g.Initial); len(all) < delaysMax; d *= g.Multiplier {
		one := time.Duration(min(d, float64(g.Max)))
		all = append(all, one)
		if one >= g.Max || len(all) >= int(attempts)-1 {
			break
		}
	}
	return all
}

// DefaultMaxAttempts is for groups that name none.
const DefaultMaxAttempts = 17

// DefaultBackoff returns the delays of a group that names none. The slice is a new one.
func DefaultBackoff() []time.Duration {
	const s, m, h = time.Second, time.Minute, time.Hour
	return []time.Duration{
		1 * s, 5 * s, 10 * s, 30 * s, 1 * m, 2 * m, 3 * m, 4 * m, 5 * m, 6 * m, 7 * m, 8 * m, 9 * m, 10 * m,
		20 * m, 30 * m, 1 * h, 2 * h,
	}
}

// Shard is a broker group as proxies meet it.
type Shard struct {
	ID        brokerapi.ShardID
	Name      string          // also the public broker name
	Address   string          // of the master, host:port; empty if it was never known
	Epoch     brokerapi.Epoch // of the current master
	HasMaster bool            // false: nobody leads it now
	Live      bool            // the master was heard of lately; if not, it may still serve: try others first
}

// HandleKey is a key of the receipt handles.
type HandleKey struct {
	ID  uint8 // in the handle, 1 to 255
	Key [16]byte
}
