package server

import (
	"sync/atomic"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/route"
)

// home is a broker that a send goes to.
type home struct {
	broker brokerapi.Broker
	epoch  brokerapi.Epoch
}

// shard returns the broker of a shard that has a master.
func (s *Server) shard(routes *route.Snapshot, id brokerapi.ShardID) (home, error) {
	sh := routes.Shard(id)
	if sh == nil || !sh.HasMaster {
		return home{}, mqerr.New(mqerr.Unavailable, "broker group %s has no master now", shardName(sh, id))
	}
	b, epoch, err := s.o.Brokers.Broker(id)
	if err != nil {
		return home{}, err
	}
	return home{b, epoch}, nil
}

func shardName(sh *route.Shard, id brokerapi.ShardID) any {
	if sh == nil {
		return id
	}
	return sh.Name
}

// turns deals placements out one after the other, each as often as it has queues.
type turns struct{ n atomic.Uint64 }

// start returns the index of the placement whose turn it is. If its shard was not heard of lately, it
// is the next one that was; if none was, it stays.
func (t *turns) start(routes *route.Snapshot, topic *route.Topic) int {
	i := int((t.n.Add(1) - 1) % uint64(topic.Queues))
	turn := 0
	for i >= int(topic.Placements[turn].Queues) {
		i -= int(topic.Placements[turn].Queues)
		turn++
	}
	for n := range topic.Placements {
		at := (turn + n) % len(topic.Placements)
		if sh := routes.Shard(topic.Placements[at].Shard); sh != nil && sh.HasMaster && sh.Live {
			return at
		}
	}
	return turn
}

// elsewhere reports whether a send that failed so may go to another shard: nothing was written, and
// the reason lies with the shard.
func elsewhere(err error) bool {
	switch mqerr.KindOf(err) {
	case mqerr.NotLeader, mqerr.Fenced, mqerr.Draining, mqerr.NotEnoughReplicas, mqerr.DiskFull, mqerr.Exhausted, mqerr.Unavailable:
		return true
	}
	return false
}
