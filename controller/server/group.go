package server

import (
	"context"
	"log/slog"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// PutGroup creates or changes a group and waits until the brokers have logged it.
func (s *Server) PutGroup(ctx context.Context, r *controllerv1.PutGroupRequest) (*controllerv1.PutGroupResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	c, err := putGroupOf(r)
	if err != nil {
		return nil, err
	}
	c.NowMS, c.Most = s.o.Now().UnixMilli(), s.o.GroupsMax
	done, err := s.putGroup(ctx, c)
	if err != nil {
		return nil, err
	}
	g := done.Group
	if done.Created || done.Changed {
		s.o.Log.LogAttrs(ctx, slog.LevelInfo, "group stored", slog.String("group", g.Name), slog.Uint64("id", uint64(g.ID)), slog.Bool("ordered", g.Ordered),
			slog.Int("max_attempts", g.MaxAttempts), slog.Bool("created", done.Created), slog.String("principal", r.GetPrincipal()))
	}
	version := g.Version
	if c.Mode == state.Ensure {
		version = g.Created
	}
	if err := s.o.Registry.AwaitGroup(ctx, g, version); err != nil {
		return nil, err
	}
	return &controllerv1.PutGroupResponse{Group: groupProto(g), Created: done.Created, Changed: done.Changed}, nil
}

func (s *Server) putGroup(ctx context.Context, c state.PutGroup) (state.Result, error) {
	if c.Mode != state.Ensure {
		return s.o.Node.Apply(c)
	}
	return s.once("group "+c.Name, func() (state.Result, error) {
		var have *state.Group
		s.o.Node.View(func(st *state.State) { have = st.Group(c.Name) })
		if have != nil {
			return state.Result{Group: have}, s.sure(ctx)
		}
		return s.o.Node.Apply(c)
	})
}

func putGroupOf(r *controllerv1.PutGroupRequest) (state.PutGroup, error) {
	c := state.PutGroup{
		Name: r.GetName(), Ordered: r.Ordered, From: state.From(r.GetFrom()), FromMS: r.GetFromMs(), LiteTopic: r.LiteTopic, BackoffMS: r.GetBackoffMs(),
		MaxInFlight: r.MaxInFlight, MaxInFlightClient: r.MaxInFlightClient,
	}
	if x := r.GetExponential(); x != nil {
		c.Exponential = &state.Growth{InitialMS: x.GetInitialMs(), MaxMS: x.GetMaxMs(), Multiplier: int(x.GetMultiplierMilli())}
	}
	if r.MaxAttempts != nil {
		n := int(r.GetMaxAttempts())
		c.MaxAttempts = &n
	}
	if int32(c.From) != int32(r.GetFrom()) {
		return c, mqerr.New(mqerr.Invalid, "group %q: unknown start %d", c.Name, r.GetFrom())
	}
	var ok bool
	if c.Mode, ok = modeOf(r.GetMode()); !ok {
		return c, mqerr.New(mqerr.Invalid, "group %q: unknown mode %d", c.Name, r.GetMode())
	}
	return c, c.Validate()
}

// DeleteGroup deletes a group and waits until the brokers have logged that.
func (s *Server) DeleteGroup(ctx context.Context, r *controllerv1.DeleteGroupRequest) (*controllerv1.DeleteGroupResponse, error) {
	ctx, cancel := answerBy(ctx)
	defer cancel()
	if err := s.leading(ctx); err != nil {
		return nil, err
	}
	if err := state.CheckGroupName(r.GetName()); err != nil {
		return nil, err
	}
	done, err := s.o.Node.Apply(state.DeleteGroup{Name: r.GetName()})
	if err != nil {
		return nil, err
	}
	s.o.Log.LogAttrs(ctx, slog.LevelInfo, "group deleted", slog.String("group", done.Group.Name), slog.Uint64("id", uint64(done.Group.ID)), slog.String("principal", r.GetPrincipal()))
	if err := s.o.Registry.AwaitGone(ctx, state.GroupDeleted{Group: done.Group, Version: done.Version}); err != nil {
		return nil, err
	}
	return &controllerv1.DeleteGroupResponse{}, nil
}
