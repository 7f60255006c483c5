package raft

import (
	"log/slog"
	"slices"
	"strconv"
	"time"

	hraft "github.com/hashicorp/raft"
)

// awayAfter is how long a node may be silent before the leader's log says so.
const awayAfter = 2 * time.Second

// observe lets the leader's log say once that another node is away, and when it is back. The library tells
// of every heartbeat that fails; it is not waited for.
func (n *Node) observe() {
	n.raft.RegisterObserver(hraft.NewObserver(n.seen, false, func(o *hraft.Observation) bool {
		switch o.Data.(type) {
		case hraft.FailedHeartbeatObservation, hraft.ResumedHeartbeatObservation, hraft.RaftState, hraft.PeerObservation:
			return true
		}
		return false
	}))
	n.wg.Go(func() {
		away := map[hraft.ServerID]bool{}
		defer n.away.Store(0)
		for {
			var o hraft.Observation
			select {
			case o = <-n.seen:
			case <-n.closing: // the channel stays open: the library may still have something to say
				return
			}
			switch o := o.Data.(type) {
			case hraft.RaftState: // another lead, another view
				clear(away)
			case hraft.PeerObservation:
				if o.Removed {
					delete(away, o.Peer.ID)
				}
			case hraft.FailedHeartbeatObservation:
				if !away[o.PeerID] && time.Since(o.LastContact) >= awayAfter {
					away[o.PeerID] = true
					n.o.Log.Warn("a controller does not answer the leader: the others go on as long as they are a majority; start it, or replace it", slog.String("controller", string(o.PeerID)))
				}
			case hraft.ResumedHeartbeatObservation:
				if away[o.PeerID] {
					delete(away, o.PeerID)
					n.o.Log.Info("a controller answers the leader again", slog.String("controller", string(o.PeerID)))
				}
			}
			n.away.Store(int64(len(away)))
		}
	})
}

// Away is how many members do not answer this node while it leads.
func (n *Node) Away() int { return int(n.away.Load()) }

// ownCheck is how often a node looks whether it is still a member.
const ownCheck = time.Second

// belong ends the node when the cluster goes on without it: whoever knows that stands for no election, so
// nobody would tell it.
func (n *Node) belong() {
	tick := time.NewTicker(ownCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.closing:
			return
		}
		voters, err := n.Voters()
		if err != nil {
			continue
		}
		at, err := strconv.ParseUint(n.raft.Stats()["latest_configuration_index"], 10, 64)
		own := slices.ContainsFunc(voters, func(v Voter) bool { return v.ID == n.o.ID })
		if err == nil && len(voters) > 0 && !own && at <= n.raft.CommitIndex() {
			n.fail(errRemoved(n.o.ID))
		}
	}
}
