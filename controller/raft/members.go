package raft

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	hraft "github.com/hashicorp/raft"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Voter is a member of the Raft cluster. One that does not vote is catching up.
type Voter struct {
	Member
	Votes bool
}

// Voters returns the members as this node knows them, by id.
func (n *Node) Voters() ([]Voter, error) {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, err
	}
	var out []Voter
	for _, s := range f.Configuration().Servers {
		out = append(out, Voter{Member{string(s.ID), string(s.Address)}, s.Suffrage == hraft.Voter})
	}
	slices.SortFunc(out, func(a, b Voter) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out, nil
}

// Look asks the raft port at an address who is there. Unavailable: nobody, or no controller.
func (n *Node) Look(addr string) (id string, member bool, err error) {
	conn, g, err := greet(n.o.Dial, addr, n.greeting(), greetTimeout)
	if err != nil {
		return "", false, mqerr.New(mqerr.Unavailable, "no controller answers at %s: %w", addr, err)
	}
	_ = conn.Close()
	if err := answered(g); err != nil {
		return g.ID, false, err
	}
	return g.ID, g.Cluster != "", n.judge(g)
}

// Learner adds a member without a vote, or one with a new address. It gets everything and counts for nothing.
func (n *Node) Learner(m Member) error {
	return n.changed(n.raft.AddNonvoter(hraft.ServerID(m.ID), hraft.ServerAddress(m.Addr), 0, enqueueTimeout))
}

// Voter gives a member its vote.
func (n *Node) Voter(m Member) error {
	return n.changed(n.raft.AddVoter(hraft.ServerID(m.ID), hraft.ServerAddress(m.Addr), 0, enqueueTimeout))
}

// Remove takes a member out. The leader can't remove itself: Transfer first.
func (n *Node) Remove(id string) error {
	if id == n.o.ID {
		return mqerr.New(mqerr.Invalid, "a leader does not remove itself")
	}
	return n.changed(n.raft.RemoveServer(hraft.ServerID(id), 0, enqueueTimeout))
}

func (n *Node) changed(f hraft.Future) error {
	if err := f.Error(); err != nil {
		return applyError(err)
	}
	return nil
}

// Transfer gives the lead to a voter, or to any if id is empty.
func (n *Node) Transfer(id string) error {
	var f hraft.Future
	if id == "" {
		f = n.raft.LeadershipTransfer()
	} else {
		voters, err := n.Voters()
		if err != nil {
			return err
		}
		at := slices.IndexFunc(voters, func(v Voter) bool { return v.ID == id && v.Votes })
		if at < 0 {
			return mqerr.New(mqerr.NotFound, "no controller %q votes in this cluster", id)
		}
		f = n.raft.LeadershipTransferToServer(hraft.ServerID(id), hraft.ServerAddress(voters[at].Addr))
	}
	switch err := f.Error(); {
	case err == nil:
		return nil
	case errors.Is(err, hraft.ErrNotLeader), errors.Is(err, hraft.ErrRaftShutdown):
		return applyError(err)
	default:
		return mqerr.New(mqerr.Unavailable, "the lead was not taken over: %w", err)
	}
}

// Verify asks a majority whether this node still leads. NotLeader if it does not.
func (n *Node) Verify(ctx context.Context) error {
	done := make(chan error, 1)
	f := n.raft.VerifyLeader()
	go func() { done <- f.Error() }() // ends at the latest with the lead, within its lease
	select {
	case err := <-done:
		if err != nil {
			return mqerr.New(mqerr.NotLeader, "this controller no longer leads: %w", err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Progress is how far a node is in Raft.
type Progress struct {
	State                     string // Leader, Follower, Candidate or Shutdown
	Term, Last, Commit, Apply uint64
	// Contact is how long ago the leader was heard from; known is false on the leader, and if it never was.
	Contact time.Duration
	Known   bool
}

// Progress returns the figures of the moment.
func (n *Node) Progress() Progress {
	p := Progress{State: n.raft.State().String(), Last: n.raft.LastIndex(), Commit: n.raft.CommitIndex(), Apply: n.raft.AppliedIndex()}
	p.Term, _ = strconv.ParseUint(n.raft.Stats()["term"], 10, 64)
	if at := n.raft.LastContact(); !at.IsZero() && p.State != hraft.Leader.String() {
		p.Contact, p.Known = time.Since(at), true
	}
	return p
}
