package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/nodes"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// clusterSettings are the settings of commands that talk to the controllers themselves: they work without
// a proxy, and without a leader as far as that goes.
type clusterSettings struct {
	outputSettings `koanf:",squash"`
	Controller     []string      `koanf:"controller" help:"addresses of the controllers; one that answers is enough"`
	Timeout        time.Duration `koanf:"timeout" help:"how long to wait for an answer"`
}

func defaultCluster() clusterSettings {
	return clusterSettings{outputSettings: outputSettings{"table"}, Controller: []string{"127.0.0.1:9876"}, Timeout: 15 * time.Second}
}

func newCluster() *cobra.Command {
	c := &cobra.Command{Use: "cluster", Short: "Look at the processes of a cluster, and change its controllers and broker groups"}
	members := &cobra.Command{Use: "members", Short: "Manage the controllers of a cluster"}
	members.AddCommand(newMembersList(), newMembersAdd(), newMembersRemove())
	c.AddCommand(newClusterStatus(), members, newClusterTransfer(), newClusterElect(), newClusterGroup())
	return c
}

// call calls f with a connection to the controllers.
func (s *clusterSettings) call(ctx context.Context, f func(context.Context, *nodes.Conn) error) error {
	if err := s.check(); err != nil {
		return err
	}
	if s.Timeout <= 0 {
		return usageError("--timeout %s: use more than 0", s.Timeout)
	}
	conn, err := dialController(s.Controller)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	return explainController(f(ctx, conn))
}

// explainController turns an error of a controller into one with an exit code and something to do.
func explainController(err error) error {
	if err == nil {
		return nil
	}
	if _, coded := errors.AsType[exitError](err); coded {
		return err
	}
	err = rpc.FromStatus(err)
	kind := mqerr.KindOf(err)
	v, text := verdicts[kind], err.Error()
	switch {
	case kind == mqerr.Unsupported:
		return exitError{code: exitUnreachable, err: fmt.Errorf("%s: is --controller the address of a Perigee controller, of this release?", text)}
	case v.advice != "":
		text += "; " + v.advice
	}
	return exitError{code: v.code, err: errors.New(text)}
}

func newMembersList() *cobra.Command {
	s := defaultCluster()
	c := &cobra.Command{Use: "list", Short: "List the controllers", Args: exactArgs(0, "no argument"), RunE: func(c *cobra.Command, _ []string) error {
		return s.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
			r, err := controllerv1.NewClusterServiceClient(conn).Node(ctx, &controllerv1.NodeRequest{})
			if err != nil {
				return err
			}
			if s.Output == "json" {
				return printJSON(c.OutOrStdout(), &controllerv1.NodeResponse{Leader: r.GetLeader(), Members: r.GetMembers()})
			}
			t := newTable(c.OutOrStdout(), "CONTROLLER", "VOTES", "ADDRESS", "RAFT", "HTTP", "RELEASE")
			for _, m := range r.GetMembers() {
				t.AppendRow([]any{m.GetId(), yes(m.GetVotes()), dash(m.GetAddress()), m.GetRaftAddress(), dash(m.GetHttpAddress()), dash(m.GetRelease())})
			}
			t.Render()
			return nil
		})
	}}
	return withSettings(c, &s)
}

func newMembersAdd() *cobra.Command {
	s := defaultCluster()
	s.Timeout = time.Minute
	c := &cobra.Command{
		Use: "add ID=RAFTADDR", Short: "Take a controller into the cluster that was started with --join",
		Long: "The controller gets everything first and its vote when it has caught up; asking again goes on with it.\n" +
			"For a member, the raft address is changed to the one that is given.",
		Args: exactArgs(1, "a controller, ID=RAFTADDR"),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := memberOf(args[0])
			if err != nil {
				return usageError("%q: %w", args[0], err)
			}
			return s.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				r, err := controllerv1.NewClusterServiceClient(conn).AddMember(ctx, &controllerv1.AddMemberRequest{Id: m.ID, RaftAddress: m.Addr})
				if err != nil {
					return err
				}
				return s.say(c, r.GetChanged(), "controller %s votes", "controller %s voted already", m.ID)
			})
		},
	}
	return withSettings(c, &s)
}

func newMembersRemove() *cobra.Command {
	s := defaultCluster()
	c := &cobra.Command{
		Use: "remove ID", Short: "Take a controller out of the cluster for good",
		Long: "Its directory is refused from then on; a controller of that id may come back with an empty one and --join.\n" +
			"It is refused if the controllers that are left would be no majority of running ones.",
		Args: exactArgs(1, "the id of a controller"),
		RunE: func(c *cobra.Command, args []string) error {
			return s.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				r, err := controllerv1.NewClusterServiceClient(conn).RemoveMember(ctx, &controllerv1.RemoveMemberRequest{Id: args[0]})
				if err != nil {
					return err
				}
				return s.say(c, r.GetChanged(), "controller %s is removed", "there is no controller %s", args[0])
			})
		},
	}
	return withSettings(c, &s)
}

func newClusterTransfer() *cobra.Command {
	s := defaultCluster()
	c := &cobra.Command{
		Use: "transfer [ID]", Short: "Give the lead of the controllers to another one",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError("%s takes the id of a controller or nothing, got %q", c.CommandPath(), args)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			id := ""
			if len(args) == 1 {
				id = args[0]
			}
			return s.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				cluster := controllerv1.NewClusterServiceClient(conn)
				if _, err := cluster.Transfer(ctx, &controllerv1.TransferRequest{Id: id}); err != nil {
					return err
				}
				r, err := cluster.Node(ctx, &controllerv1.NodeRequest{})
				if err != nil {
					return err
				}
				return s.say(c, true, "controller %s leads", "", r.GetLeader())
			})
		},
	}
	return withSettings(c, &s)
}

// say prints what came of a change.
func (s *clusterSettings) say(c *cobra.Command, changed bool, done, already, id string) error {
	if s.Output == "json" {
		return printValue(c.OutOrStdout(), map[string]any{"controller": id, "changed": changed})
	}
	if !changed {
		done = already
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), done+"\n", id)
	return err
}

func yes(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
