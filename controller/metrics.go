package controller

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/perigee-mq/perigee/controller/election"
	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/obs"
)

// Stats are the figures of a controller node for metrics. Nothing here costs a system call per
// message; a scrape may ask at any time after Ready.
type Stats struct {
	Registry       registry.Stats
	Topics, Groups int
	// Connections are those of other processes at Addr, Refused those that were too many.
	Connections, Refused int64
	Leads                bool
	// LogBytes is the size of raft.db, -1 if it is unknown.
	LogBytes int64
	// Voters and Learners are the controllers with and without a vote; Away those that do not answer this
	// node. -1: not known, Away on one that does not lead.
	Voters, Learners, Away int
	// Raft are the figures of the Raft library, by its own names.
	Raft map[string]string
}

// Stats returns the figures of the moment. Only after Ready.
func (c *Controller) Stats() Stats {
	s := Stats{Registry: c.reg.Stats(), Leads: c.node.Leader() == c.o.ID, LogBytes: -1, Raft: c.node.Stats(), Connections: c.peers.Open(), Refused: c.peers.Refused()}
	s.Voters, s.Learners, s.Away = c.memberStats()
	c.node.View(func(st *state.State) { s.Topics, s.Groups, _ = st.Len() })
	if info, err := os.Stat(filepath.Join(c.o.DataDir, "raft.db")); err == nil {
		s.LogBytes = info.Size()
	}
	return s
}

// raftStates are the roles of a node in the raft library, by its names.
var raftStates = []string{"Follower", "Candidate", "Leader", "Shutdown"}

// register makes the controller's instruments. Before Ready there is nothing to show.
func (c *Controller) register(m metric.Meter) error {
	r := obs.NewInstruments(m)
	up := r.Gauge("perigee_controller_up", "1 when this controller leads or knows a leader", "")
	leads := r.Gauge("perigee_controller_leads", "1 when this controller leads", "")
	role := r.Gauge("perigee_controller_raft_state", "1 for the role that this controller has in raft, 0 for the others", "", "state")
	numbers := map[string]metric.Int64ObservableGauge{
		"term":                r.Gauge("perigee_controller_raft_term", "term of raft", ""),
		"last_log_index":      r.Gauge("perigee_controller_raft_last_index", "index of the newest entry of raft's log", ""),
		"commit_index":        r.Gauge("perigee_controller_raft_commit_index", "index up to which raft's log is committed", ""),
		"applied_index":       r.Gauge("perigee_controller_raft_applied_index", "index up to which commands are applied", ""),
		"last_snapshot_index": r.Gauge("perigee_controller_raft_snapshot_index", "index of the newest snapshot", ""),
		"num_peers":           r.Gauge("perigee_controller_raft_peers", "other controllers", ""),
	}
	contact := r.Gauge("perigee_controller_leader_contact_age", "time since the leader was heard from; absent on the leader and if it never was", "milliseconds")
	snapshot := r.Gauge("perigee_controller_snapshot_age", "time since the newest snapshot was written; absent if there is none", "milliseconds")
	logBytes := r.Gauge("perigee_controller_log_size", "size of raft.db; absent if it is unknown", "bytes")
	topics := r.Gauge("perigee_controller_topics", "topics that are defined", "")
	groups := r.Gauge("perigee_controller_groups", "consumer groups that are defined", "")
	brokers := r.Gauge("perigee_controller_brokers", "broker groups, by state: live ones serve, away ones are silent or not caught up; of the leader only", "", "state")
	sessions := r.Gauge("perigee_controller_broker_sessions", "sessions of brokers; of the leader only", "")
	conns := r.Gauge("perigee_controller_connections", "connections of brokers, proxies, other controllers and the command line", "")
	connsRefused := r.Counter("perigee_controller_connections_refused", "connections that were closed since as many were open as may be")
	watchers := r.Gauge("perigee_controller_proxies", "proxies that follow the definitions at this controller", "")
	members := r.Gauge("perigee_controller_members", "controllers of the cluster, by state: with a vote, or still learning", "", "state")
	membersAway := r.Gauge("perigee_controller_members_away", "controllers that do not answer; of the leader only", "")
	caughtUp := r.Gauge("perigee_controller_caught_up", "1 when this controller has caught up with the others since its start, so that it answers proxies", "")
	pending := r.Gauge("perigee_controller_pending_definitions", "definitions that proxies do not see yet, because a broker has not logged them; of the leader only", "")
	elections := r.Counter("perigee_controller_elections", "masters of broker groups that this controller had elected since its start, by reason: vacant (there was none), silent, gone, transfer, unclean", "reason")
	leases := r.Gauge("perigee_controller_leases", "broker groups whose master may hold a lease; of the leader only", "")
	stuck := r.Gauge("perigee_controller_stuck_groups", "broker groups that need a master while no replica that may be one is heard from; of the leader only", "")
	losses := r.Gauge("perigee_controller_data_losses", "unclean elections of all broker groups so far: each may have lost acknowledged messages", "")
	return r.Observe(func(_ context.Context, o metric.Observer) error {
		healthy := c.Healthy()
		o.ObserveInt64(up, flag(healthy == nil))
		select {
		case <-c.ready:
		default:
			return healthy
		}
		s := c.Stats()
		o.ObserveInt64(leads, flag(s.Leads))
		for _, name := range raftStates {
			o.ObserveInt64(role, flag(s.Raft["state"] == name), metric.WithAttributes(attribute.String("state", name)))
		}
		for name, g := range numbers {
			if n, err := strconv.ParseInt(s.Raft[name], 10, 64); err == nil {
				o.ObserveInt64(g, n)
			}
		}
		if age, err := time.ParseDuration(s.Raft["last_contact"]); err == nil && !s.Leads {
			o.ObserveInt64(contact, age.Milliseconds())
		}
		if at, ok := newestSnapshot(c.o.DataDir); ok {
			o.ObserveInt64(snapshot, max(0, c.o.Now().Sub(at).Milliseconds()))
		}
		if s.LogBytes >= 0 {
			o.ObserveInt64(logBytes, s.LogBytes)
		}
		o.ObserveInt64(topics, int64(s.Topics))
		o.ObserveInt64(groups, int64(s.Groups))
		o.ObserveInt64(conns, s.Connections)
		o.ObserveInt64(connsRefused, s.Refused)
		o.ObserveInt64(watchers, int64(s.Registry.Watchers))
		o.ObserveInt64(caughtUp, flag(s.Registry.Known))
		if s.Voters >= 0 {
			o.ObserveInt64(members, int64(s.Voters), metric.WithAttributes(attribute.String("state", "votes")))
			o.ObserveInt64(members, int64(s.Learners), metric.WithAttributes(attribute.String("state", "learns")))
		}
		for _, why := range election.Reasons {
			o.ObserveInt64(elections, int64(s.Registry.Elections[string(why)]), metric.WithAttributes(attribute.String("reason", string(why))))
		}
		o.ObserveInt64(losses, int64(s.Registry.DataLosses))
		if s.Leads {
			o.ObserveInt64(leases, int64(s.Registry.Leases))
			o.ObserveInt64(stuck, int64(s.Registry.Stuck))
			o.ObserveInt64(brokers, int64(s.Registry.LiveShards), metric.WithAttributes(attribute.String("state", "live")))
			o.ObserveInt64(brokers, int64(s.Registry.Shards-s.Registry.LiveShards), metric.WithAttributes(attribute.String("state", "away")))
			o.ObserveInt64(sessions, int64(s.Registry.Sessions))
			o.ObserveInt64(membersAway, int64(s.Away))
			o.ObserveInt64(pending, int64(s.Registry.Pending))
		}
		return nil
	})
}

// memberStats counts the controllers.
func (c *Controller) memberStats() (votes, learns, away int) {
	all, err := c.node.Voters()
	if err != nil {
		return -1, -1, -1
	}
	for _, v := range all {
		if v.Votes {
			votes++
		} else {
			learns++
		}
	}
	return votes, learns, c.node.Away()
}

func flag(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// newestSnapshot is when the newest snapshot was written.
func newestSnapshot(dir string) (at time.Time, ok bool) {
	entries, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil {
		return at, false
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && filepath.Ext(e.Name()) != ".tmp" && info.ModTime().After(at) {
			at, ok = info.ModTime(), true
		}
	}
	return at, ok
}
