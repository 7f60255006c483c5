package server

import (
	"context"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
)

// Node tells what this node knows of itself and of the cluster.
func (s *Server) Node(context.Context, *controllerv1.NodeRequest) (*controllerv1.NodeResponse, error) {
	p := s.o.Node.Progress()
	resp := &controllerv1.NodeResponse{
		Hello: s.ownHello(), Id: s.o.ID, Role: p.State, Term: p.Term, LastIndex: p.Last, CommitIndex: p.Commit, AppliedIndex: p.Apply,
		Leader: s.o.Node.Leader(), CaughtUp: s.o.Registry.Stats().Known,
	}
	if p.Known {
		ms := p.Contact.Milliseconds()
		resp.ContactMs = &ms
	}
	members, err := s.members()
	if err != nil {
		return nil, err
	}
	resp.Members = members
	for _, v := range s.o.Registry.Viewers() {
		resp.Watchers = append(resp.Watchers, &controllerv1.Watcher{Address: v.Address, HttpAddress: v.HTTP, Release: v.Release})
	}
	return resp, nil
}

// members are the nodes of the Raft cluster with what they have announced.
func (s *Server) members() ([]*controllerv1.Member, error) {
	voters, err := s.o.Node.Voters()
	if err != nil {
		return nil, err
	}
	var out []*controllerv1.Member
	s.o.Node.View(func(st *state.State) {
		for _, v := range voters {
			c, _ := st.Controller(v.ID)
			out = append(out, &controllerv1.Member{Id: v.ID, RaftAddress: v.Addr, Votes: v.Votes, Address: c.Address, HttpAddress: c.HTTP, Release: c.Release})
		}
	})
	return out, nil
}
