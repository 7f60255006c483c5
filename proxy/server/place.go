package server

import (
	"math"

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
func (s *Server) shard(id brokerapi.ShardID) (home, error) {
	b, epoch, err := s.o.Brokers.Broker(id)
	if err != nil {
		return home{}, err
	}
	return home{b, epoch}, nil
}

// ranked returns the placement that is the n-th choice for a message id, from 0: by rendezvous hashing, each
// as often as it has queues. It depends on the topic's placements and on nothing else, so that a message
// which is sent again meets the broker that may have it already, through whichever proxy it comes.
func ranked(t *route.Topic, id []byte, n int) int {
	ps := t.Placements
	if len(ps) == 1 {
		return 0
	}
	hash := brokerapi.HashMessage(t.ID, id)
	score := func(i int) float64 {
		u := (float64(mix(hash^uint64(ps[i].Shard)*0x9e3779b97f4a7c15)>>11) + 0.5) / (1 << 53) // within (0, 1)
		return -float64(ps[i].Queues) / math.Log(u)
	}
	limit, last := math.Inf(1), -1
	for {
		best, most := -1, math.Inf(-1)
		for i := range ps {
			if s := score(i); (s < limit || s == limit && i > last) && s > most {
				best, most = i, s
			}
		}
		if n--; n < 0 || best < 0 {
			return max(best, 0)
		}
		limit, last = most, best
	}
}

// mix spreads the bits of x.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
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

// mayReturn reports whether a shard that failed so may serve again soon.
func mayReturn(err error) bool {
	switch mqerr.KindOf(err) {
	case mqerr.NotLeader, mqerr.Fenced, mqerr.Draining, mqerr.Unavailable:
		return true
	}
	return false
}
