package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/nodes"
	"github.com/perigee-mq/perigee/internal/rpc"
)

// clusterStatus is every process of a cluster. What is not known is left out.
type clusterStatus struct {
	Cluster string `json:"cluster,omitempty"`
	Leader  string `json:"leader,omitempty"` // of the controllers
	Topics  uint32 `json:"topics"`
	Groups  uint32 `json:"groups"`
	// From is the controller that told about brokers. If it does not lead, it knows what the leader said last.
	From         string             `json:"from"`
	Controllers  []controllerStatus `json:"controllers"`
	BrokerGroups []brokerGroup      `json:"broker_groups"`
	Brokers      []brokerStatus     `json:"brokers"`
	Proxies      []proxyStatus      `json:"proxies"`
}

type controllerStatus struct {
	ID       string  `json:"id"`
	Role     string  `json:"role,omitempty"` // leader, follower or candidate
	Votes    bool    `json:"votes"`
	Term     *uint64 `json:"term,omitempty"`
	Applied  *uint64 `json:"applied,omitempty"`    // Raft index
	Lag      *uint64 `json:"lag,omitempty"`        // entries behind the leader's log
	Contact  *int64  `json:"contact_ms,omitempty"` // since it heard from the leader
	CaughtUp *bool   `json:"caught_up,omitempty"`
	Address  string  `json:"address,omitempty"`
	Raft     string  `json:"raft_address"`
	HTTP     string  `json:"http_address,omitempty"`
	Release  string  `json:"release,omitempty"`
	Error    string  `json:"error,omitempty"` // why it did not answer
}

type proxyStatus struct {
	Address    string `json:"address"`
	HTTP       string `json:"http_address,omitempty"`
	Release    string `json:"release,omitempty"`
	Controller string `json:"controller"` // whose routes it follows
}

func newClusterStatus() *cobra.Command {
	s := defaultCluster()
	c := &cobra.Command{
		Use: "status", Short: "Show every process of a cluster",
		Long: "Asks one controller who the others are, and each of them how far it is and which proxies follow it. The brokers are\n" +
			"those that the leader knows, or whoever answers if there is none.",
		Args: exactArgs(0, "no argument"), RunE: func(c *cobra.Command, _ []string) error {
			return s.call(c.Context(), func(ctx context.Context, conn *nodes.Conn) error {
				out, err := lookAtCluster(ctx, conn)
				if err != nil {
					return err
				}
				if s.Output == "json" {
					return printValue(c.OutOrStdout(), out)
				}
				return out.print(c.OutOrStdout())
			})
		},
	}
	return withSettings(c, &s)
}

// nodeTimeout bounds the question to one controller.
const nodeTimeout = 2 * time.Second

// lookAtCluster asks one controller who there is, and then all of them.
func lookAtCluster(ctx context.Context, conn *nodes.Conn) (*clusterStatus, error) {
	first, err := controllerv1.NewClusterServiceClient(conn).Node(ctx, &controllerv1.NodeRequest{})
	if err != nil {
		return nil, err
	}
	asked := make([]*controllerv1.NodeResponse, len(first.GetMembers()))
	out := &clusterStatus{Cluster: first.GetHello().GetClusterId(), Leader: first.GetLeader(), Controllers: make([]controllerStatus, len(asked)), BrokerGroups: []brokerGroup{}, Brokers: []brokerStatus{}, Proxies: []proxyStatus{}}
	var wg sync.WaitGroup
	for i, m := range first.GetMembers() {
		wg.Go(func() { out.Controllers[i], asked[i] = askController(ctx, m) })
	}
	wg.Wait()
	out.weigh(asked)
	for i, r := range asked {
		for _, w := range r.GetWatchers() {
			if w.GetAddress() == "" { // somebody who only looks
				continue
			}
			out.Proxies = append(out.Proxies, proxyStatus{w.GetAddress(), w.GetHttpAddress(), w.GetRelease(), out.Controllers[i].ID})
		}
	}
	slices.SortFunc(out.Proxies, func(a, b proxyStatus) int { return cmp.Compare(a.Address, b.Address) })
	return out, out.brokers(ctx, conn)
}

// weigh finds the leader of the highest term, and how far the others are behind it.
func (s *clusterStatus) weigh(asked []*controllerv1.NodeResponse) {
	var leader *controllerv1.NodeResponse
	for _, r := range asked {
		if r.GetRole() == "Leader" && r.GetTerm() >= leader.GetTerm() {
			leader = r
		}
	}
	if leader == nil {
		s.Leader = ""
		return
	}
	s.Leader = leader.GetId()
	for i, r := range asked {
		if r != nil {
			lag := leader.GetLastIndex() - min(leader.GetLastIndex(), r.GetAppliedIndex())
			s.Controllers[i].Lag = &lag
		}
	}
}

func askController(ctx context.Context, m *controllerv1.Member) (controllerStatus, *controllerv1.NodeResponse) {
	out := controllerStatus{ID: m.GetId(), Votes: m.GetVotes(), Address: m.GetAddress(), Raft: m.GetRaftAddress(), HTTP: m.GetHttpAddress(), Release: m.GetRelease()}
	if m.GetAddress() == "" {
		out.Error = "it has not told where it is reached"
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	conn, err := dialController([]string{m.GetAddress()})
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	defer conn.Close()
	r, err := controllerv1.NewClusterServiceClient(conn).Node(ctx, &controllerv1.NodeRequest{})
	if err != nil {
		out.Error = rpc.FromStatus(err).Error()
		return out, nil
	}
	if r.GetId() != m.GetId() {
		out.Error = fmt.Sprintf("controller %q answers there: give each its own --addr or --advertise", r.GetId())
		return out, nil
	}
	term, applied, caughtUp := r.GetTerm(), r.GetAppliedIndex(), r.GetCaughtUp()
	out.Role, out.Term, out.Applied, out.Contact, out.CaughtUp = r.GetRole(), &term, &applied, r.ContactMs, &caughtUp
	return out, r
}

func (s *clusterStatus) print(w io.Writer) error {
	leader := "controller " + s.Leader + " leads"
	if s.Leader == "" {
		leader = "no controller leads: changes are refused, what is served goes on"
	}
	if _, err := fmt.Fprintf(w, "cluster %s: %s; %d topics, %d groups\n\n", dash(s.Cluster), leader, s.Topics, s.Groups); err != nil {
		return err
	}
	t := newTable(w, "CONTROLLER", "ROLE", "VOTES", "TERM", "APPLIED", "LAG", "HEARD", "ADDRESS", "RAFT", "HTTP", "RELEASE")
	for _, c := range s.Controllers {
		role := c.Role
		if c.Error != "" {
			role = "no answer"
		} else if c.CaughtUp != nil && !*c.CaughtUp {
			role += ", behind"
		}
		t.AppendRow([]any{c.ID, role, yes(c.Votes), number(c.Term), number(c.Applied), number(c.Lag), ago(c.Contact), dash(c.Address), c.Raft, dash(c.HTTP), dash(c.Release)})
	}
	t.Render()
	for _, c := range s.Controllers {
		if c.Error != "" {
			fmt.Fprintf(w, "%s: %s\n", c.ID, c.Error)
		}
	}
	fmt.Fprintln(w)
	t = newTable(w, "GROUP", "EPOCH", "MASTER", "IN SYNC", "V", "ELR", "MIN ISR", "MODE", "LEASE", "DATA LOSSES")
	for _, g := range s.BrokerGroups {
		master := fmt.Sprint(g.Master)
		if g.Master == 0 {
			master = "none"
		}
		if g.Stuck {
			master += ", stuck"
		}
		t.AppendRow([]any{g.Group, g.Epoch, master, ids(g.InSync), g.SetVersion, ids(g.ELR), g.MinISR, g.Mode, ago(g.LeaseAge), g.DataLosses})
	}
	t.Render()
	fmt.Fprintln(w)
	t = newTable(w, "BROKER", "ROLE", "IN SYNC", "EPOCH", "LIVE", "LAG", "HEARD", "ADDRESS", "HTTP", "RELEASE")
	for _, b := range s.Brokers {
		live := "-"
		if b.Live != nil {
			live = yes(*b.Live)
		}
		t.AppendRow([]any{fmt.Sprintf("%s/%d", b.Group, b.ID), b.Role, yes(b.InSync), b.Epoch, live, number(b.Lag), ago(b.Heard), b.Address, dash(b.HTTP), dash(b.Release)})
	}
	t.Render()
	fmt.Fprintln(w)
	t = newTable(w, "PROXY", "HTTP", "RELEASE", "FOLLOWS")
	for _, p := range s.Proxies {
		t.AppendRow([]any{p.Address, dash(p.HTTP), dash(p.Release), p.Controller})
	}
	t.Render()
	return nil
}

func number[N uint64 | int64](n *N) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func ago(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return (time.Duration(*ms) * time.Millisecond).String()
}

// printValue prints indented JSON.
func printValue(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
