package server

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/raft"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// Announce notes where a node is reached.
func (s *Server) Announce(ctx context.Context, r *controllerv1.AnnounceRequest) (*controllerv1.AnnounceResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	if err := s.hello(r.GetHello(), true); err != nil {
		return nil, err
	}
	if len(r.GetUuid()) != len(state.UUID{}) {
		return nil, mqerr.New(mqerr.Invalid, "controller %q: the identity of a data directory has %d bytes, not %d", r.GetId(), len(state.UUID{}), len(r.GetUuid()))
	}
	if at, _, err := s.member(r.GetId()); err != nil || at == nil {
		return nil, orElse(err, mqerr.New(mqerr.NotFound, "controller %q is no member of this cluster: add it with `perigee cluster members add`", r.GetId()))
	}
	c := state.PutController{Controller: state.Controller{
		ID: r.GetId(), UUID: state.UUID(r.GetUuid()), Address: r.GetAddress(), HTTP: r.GetHttpAddress(), Raft: r.GetRaftAddress(), Release: r.GetHello().GetRelease(),
	}}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var have state.Controller
	s.o.Node.View(func(st *state.State) { have, _ = st.Controller(c.ID) })
	if have == c.Controller {
		return &controllerv1.AnnounceResponse{}, s.sure(ctx)
	}
	if _, err := s.o.Node.Apply(c); err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "controller announced", slog.String("controller", c.ID), slog.String("address", c.Address))
	return &controllerv1.AnnounceResponse{}, nil
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// member finds a node of the Raft cluster, nil if there is none of that id.
func (s *Server) member(id string) (*raft.Voter, []raft.Voter, error) {
	voters, err := s.o.Node.Voters()
	if err != nil {
		return nil, nil, err
	}
	if at := slices.IndexFunc(voters, func(v raft.Voter) bool { return v.ID == id }); at >= 0 {
		return &voters[at], voters, nil
	}
	return nil, voters, nil
}

// AddMember takes a node in: without a vote until it has announced itself, which it does when it has
// everything.
func (s *Server) AddMember(ctx context.Context, r *controllerv1.AddMemberRequest) (*controllerv1.AddMemberResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	m := raft.Member{ID: r.GetId(), Addr: r.GetRaftAddress()}
	if err := state.CheckControllerID(m.ID); err != nil {
		return nil, err
	}
	if host, port, err := net.SplitHostPort(m.Addr); err != nil || host == "" || port == "" {
		return nil, mqerr.New(mqerr.Invalid, "controller %q: the raft address %q is not host:port", m.ID, m.Addr)
	}
	have, voters, err := s.member(m.ID)
	if err != nil {
		return nil, err
	}
	if have != nil && have.Votes && have.Addr == m.Addr {
		return &controllerv1.AddMemberResponse{}, s.sure(ctx)
	}
	if err := s.fits(m, have, voters); err != nil {
		return nil, err
	}
	if have == nil || !have.Votes {
		if err := s.o.Node.Learner(m); err != nil {
			return nil, err
		}
		s.o.Log.LogAttrs(ctx, slog.LevelInfo, "controller taken in, without a vote until it has caught up", slog.String("controller", m.ID), slog.String("raft_address", m.Addr),
			slog.String("principal", r.GetPrincipal()))
		if err := s.awaitAnnounced(ctx, m.ID); err != nil {
			return nil, err
		}
	}
	if err := s.o.Node.Voter(m); err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "controller votes", slog.String("controller", m.ID), slog.String("raft_address", m.Addr), slog.String("principal", r.GetPrincipal()))
	return &controllerv1.AddMemberResponse{Changed: true}, nil
}

// fits looks at who is at the address of a new member, before the cluster counts on it.
func (s *Server) fits(m raft.Member, have *raft.Voter, voters []raft.Voter) error {
	for _, v := range voters {
		if v.Addr == m.Addr && v.ID != m.ID {
			return mqerr.New(mqerr.Exists, "the raft address %s is that of controller %q", m.Addr, v.ID)
		}
		if host, _, err := net.SplitHostPort(v.Addr); err != nil || net.ParseIP(host).IsUnspecified() {
			return mqerr.New(mqerr.Invalid, "controller %q is known at %q, where another node can't reach it: start it again with --raft-advertise first", v.ID, v.Addr)
		}
	}
	id, member, err := s.o.Node.Look(m.Addr)
	switch {
	case err != nil:
		return err
	case id != m.ID:
		return mqerr.New(mqerr.Invalid, "the controller at %s is %q, not %q: name it by its --id", m.Addr, id, m.ID)
	case have == nil && member:
		return mqerr.New(mqerr.Denied, "the controller at %s was a member before, or is alone a cluster of its own: start it on an empty directory with --join", m.Addr)
	}
	return nil
}

// awaitAnnounced waits until a node without a vote has caught up, which it shows by telling where it is.
func (s *Server) awaitAnnounced(ctx context.Context, id string) error {
	for {
		known := false
		s.o.Node.View(func(st *state.State) { _, known = st.Controller(id) })
		if known {
			return nil
		}
		if !pause(ctx, placePoll) {
			return mqerr.New(mqerr.Unavailable, "controller %q is taken in but has not caught up yet, so it has no vote: see whether it reaches the others, and ask again", id)
		}
		if leads, _ := s.o.Registry.Leads(); !leads {
			return mqerr.New(mqerr.UnknownOutcome, "the lead changed while controller %q caught up: ask again", id)
		}
	}
}

// RemoveMember takes a node out. A leader that is to go gives its lead away first; the next one is asked then.
func (s *Server) RemoveMember(ctx context.Context, r *controllerv1.RemoveMemberRequest) (*controllerv1.RemoveMemberResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	have, voters, err := s.member(r.GetId())
	switch {
	case err != nil:
		return nil, err
	case have == nil:
		var known bool
		s.o.Node.View(func(st *state.State) { _, known = st.Controller(r.GetId()) })
		if !known {
			return &controllerv1.RemoveMemberResponse{}, s.sure(ctx)
		}
	default:
		if err := s.enoughWithout(have, voters); err != nil {
			return nil, err
		}
		if have.ID == s.o.ID {
			if err := s.o.Node.Transfer(""); err != nil {
				return nil, err
			}
			return nil, mqerr.New(mqerr.NotLeader, "this controller has given the lead away")
		}
		if err := s.o.Node.Remove(have.ID); err != nil {
			return nil, err
		}
	}
	if _, err := s.o.Node.Apply(state.RemoveController{ID: r.GetId()}); err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "controller removed", slog.String("controller", r.GetId()), slog.String("principal", r.GetPrincipal()))
	return &controllerv1.RemoveMemberResponse{Changed: true}, nil
}

// enoughWithout refuses to take out a node if the cluster could do nothing any more.
func (s *Server) enoughWithout(gone *raft.Voter, voters []raft.Voter) error {
	if !gone.Votes {
		return nil
	}
	left, up := 0, 0
	for _, v := range voters {
		if !v.Votes || v.ID == gone.ID {
			continue
		}
		left++
		if v.ID == s.o.ID {
			up++
		} else if _, _, err := s.o.Node.Look(v.Addr); err == nil {
			up++
		}
	}
	if up <= left/2 {
		return mqerr.New(mqerr.Invalid, "without controller %q, %d of %d controllers would be running, which is no majority: start the others first", gone.ID, up, left)
	}
	return nil
}

// transferWait bounds the wait for a node that takes the lead over.
const transferWait = 5 * time.Second

// Transfer gives the lead to another node, and waits until it leads.
func (s *Server) Transfer(ctx context.Context, r *controllerv1.TransferRequest) (*controllerv1.TransferResponse, error) {
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	if r.GetId() == s.o.ID {
		return &controllerv1.TransferResponse{}, s.sure(ctx)
	}
	if err := s.o.Node.Transfer(r.GetId()); err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "the lead was given away", slog.String("to", r.GetId()), slog.String("principal", r.GetPrincipal()))
	ctx, cancel := context.WithTimeout(ctx, transferWait)
	defer cancel()
	for s.leaderAddr() == "" {
		if !pause(ctx, placePoll) {
			return nil, mqerr.New(mqerr.UnknownOutcome, "the lead was given away, but no other controller has said that it leads")
		}
	}
	return &controllerv1.TransferResponse{}, nil
}

// AnnounceSelf makes this node's own announcement, here or at the leader.
func (s *Server) AnnounceSelf(ctx context.Context, r *controllerv1.AnnounceRequest) error {
	r.Hello = s.ownHello()
	_, err := s.handOn(ctx, r, controllerv1.ClusterService_Announce_FullMethodName, func(ctx context.Context, _ any) (any, error) { return s.Announce(ctx, r) })
	return rpc.FromStatus(err)
}
