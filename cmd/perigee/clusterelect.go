package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/nodes"
)

type electSettings struct {
	clusterSettings `koanf:",squash"`
	To              uint32 `koanf:"to" help:"replica that is to lead; 0: whoever has every acknowledged message, but not the present one"`
	Unclean         bool   `koanf:"unclean" help:"elect --to though it may miss acknowledged messages, which are lost then; only when nobody who has them is left"`
	AcceptLoss      bool   `koanf:"i-accept-data-loss" help:"with --unclean: yes, messages may be lost"`
	Token           string `koanf:"token" help:"with --unclean: name of this decision; the same again is not carried out twice; default: a new one"`
}

func newClusterElect() *cobra.Command {
	s := electSettings{clusterSettings: defaultCluster()}
	c := &cobra.Command{
		Use: "elect GROUP", Short: "Give a broker group another leading replica",
		Long: "The present one is asked to resign, and replaced at the latest when its lease is over. Only replicas that have every\n" +
			"acknowledged message are elected. With --unclean --to ID --i-accept-data-loss one that may miss some is, if none of\n" +
			"the others is heard from: what it misses is lost, and the group's data losses are counted for ever.",
		Args: exactArgs(1, "a broker group"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.checkLoss(); err != nil {
				return err
			}
			return s.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				r, err := controllerv1.NewShardServiceClient(conn).Elect(ctx, &controllerv1.ElectRequest{ShardName: args[0], To: s.To, Unclean: s.Unclean, Token: s.Token})
				if err != nil {
					return err
				}
				return s.tell(c, r.GetShard(), r.GetChanged(), fmt.Sprintf("replica %d leads", r.GetShard().GetMaster()))
			})
		},
	}
	return withSettings(c, &s)
}

func (s *electSettings) checkLoss() error {
	switch {
	case !s.Unclean && (s.AcceptLoss || s.Token != ""):
		return usageError("--i-accept-data-loss and --token belong to --unclean")
	case s.Unclean && s.To == 0:
		return usageError("--unclean needs --to: look at perigee cluster status for the replica with the longest log")
	case s.Unclean && !s.AcceptLoss:
		return usageError("--unclean loses the acknowledged messages that replica %d misses: say --i-accept-data-loss, or start a replica that has them", s.To)
	}
	if s.Unclean && s.Token == "" {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		s.Token = time.Now().UTC().Format("20060102T150405Z-") + hex.EncodeToString(b[:])
	}
	return nil
}

// tell prints what came of a change of a broker group.
func (s *clusterSettings) tell(c *cobra.Command, h *controllerv1.Shard, changed bool, text string) error {
	if s.Output == "json" {
		return printValue(c.OutOrStdout(), map[string]any{"broker_group": brokerGroupOf(h), "changed": changed})
	}
	if !changed {
		text += " (as before)"
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "broker group %s: %s\n", h.GetName(), text)
	return err
}

type groupSetSettings struct {
	clusterSettings `koanf:",squash"`
	MinISR          int    `koanf:"min-isr" help:"copies that there must be before anything is acknowledged; 0: as it is"`
	Mode            string `koanf:"mode" help:"durable: a copy counts when it is on the disk; memory: when it is written; only while the group has one replica, and that is stopped; empty: as it is"`
}

func newClusterGroup() *cobra.Command {
	c := &cobra.Command{Use: "group", Short: "Manage broker groups"}
	set := groupSetSettings{clusterSettings: defaultCluster()}
	setting := &cobra.Command{
		Use: "set GROUP", Short: "Change how many copies a broker group needs, and what a copy is", Args: exactArgs(1, "a broker group"),
		RunE: func(c *cobra.Command, args []string) error {
			req := &controllerv1.SetShardRequest{ShardName: args[0]}
			if set.MinISR < 0 || set.MinISR > 1<<30 {
				return usageError("--min-isr %d: use 1 or more", set.MinISR)
			}
			if set.MinISR > 0 {
				req.MinIsr = new(int32(set.MinISR))
			}
			switch set.Mode {
			case "":
			case "durable":
				req.CommitMode = controllerv1.CommitMode_COMMIT_MODE_DURABLE
			case "memory":
				req.CommitMode = controllerv1.CommitMode_COMMIT_MODE_MEMORY
			default:
				return usageError("--mode %q: use durable or memory", set.Mode)
			}
			return set.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				r, err := controllerv1.NewShardServiceClient(conn).SetShard(ctx, req)
				if err != nil {
					return err
				}
				g := brokerGroupOf(r.GetShard())
				return set.tell(c, r.GetShard(), r.GetChanged(), fmt.Sprintf("min-isr %d, mode %s", g.MinISR, g.Mode))
			})
		},
	}
	rm := electSettings{clusterSettings: defaultCluster()}
	removing := &cobra.Command{
		Use: "remove-replica GROUP ID", Short: "Forget a replica of a broker group for good",
		Long: "Its directory is refused from then on; the id may be used again with an empty one.",
		Args: exactArgs(2, "a broker group and the id of a replica"),
		RunE: func(c *cobra.Command, args []string) error {
			var id uint32
			if _, err := fmt.Sscan(args[1], &id); err != nil || id == 0 {
				return usageError("%q is no id of a replica", args[1])
			}
			return rm.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				r, err := controllerv1.NewShardServiceClient(conn).RemoveReplica(ctx, &controllerv1.RemoveReplicaRequest{ShardName: args[0], ReplicaId: id})
				if err != nil {
					return err
				}
				return rm.tell(c, r.GetShard(), true, fmt.Sprintf("replica %d is removed", id))
			})
		},
	}
	del := defaultCluster()
	deleting := &cobra.Command{
		Use: "delete GROUP", Short: "Delete a broker group that is stopped and has no queues", Args: exactArgs(1, "a broker group"),
		RunE: func(c *cobra.Command, args []string) error {
			return del.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				if _, err := controllerv1.NewShardServiceClient(conn).DeleteShard(ctx, &controllerv1.DeleteShardRequest{ShardName: args[0]}); err != nil {
					return err
				}
				return del.tell(c, &controllerv1.Shard{Name: args[0]}, true, "deleted")
			})
		},
	}
	c.AddCommand(withSettings(setting, &set), withSettings(removing, &rm.clusterSettings), withSettings(deleting, &del))
	return c
}
