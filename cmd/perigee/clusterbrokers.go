package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/internal/nodes"
)

// brokerGroup is a broker group as the controllers' leader sees it.
type brokerGroup struct {
	Group      string   `json:"group"`
	Epoch      uint64   `json:"epoch"`
	Master     uint32   `json:"master,omitempty"`
	InSync     []uint32 `json:"in_sync"`
	SetVersion uint64   `json:"set_version"`
	ELR        []uint32 `json:"elr"` // have everything, too, though they are not in sync
	MinISR     int32    `json:"min_isr"`
	Mode       string   `json:"mode"`
	DataLosses uint64   `json:"data_losses"`
	LeaseAge   *int64   `json:"lease_age_ms,omitempty"`
	Stuck      bool     `json:"stuck"` // nobody who may be the master is heard from
}

type brokerStatus struct {
	Group   string `json:"group"`
	ID      uint32 `json:"id"`
	Role    string `json:"role"` // master or replica
	InSync  bool   `json:"in_sync"`
	Epoch   uint64 `json:"epoch"` // of the group
	Live    *bool  `json:"live,omitempty"`
	Unclean bool   `json:"unclean,omitempty"`
	Learner bool   `json:"learner,omitempty"`
	Address string `json:"address"`
	// What it said of itself last, if it was heard from lately.
	HTTP     string `json:"http_address,omitempty"`
	Release  string `json:"release,omitempty"`
	Heard    *int64 `json:"heard_ms,omitempty"` // ago
	LogEnd   *int64 `json:"log_end,omitempty"`  // bytes written
	Durable  *int64 `json:"durable_end,omitempty"`
	Confirm  *int64 `json:"confirm,omitempty"`
	Lag      *int64 `json:"lag,omitempty"` // bytes that the master has written and it has not
	FlushP99 *int64 `json:"flush_p99_us,omitempty"`
	DiskUsed *int32 `json:"disk_used_permille,omitempty"`
}

// brokers asks the leader about brokers, or whoever answers.
func (s *clusterStatus) brokers(ctx context.Context, conn *nodes.Conn) error {
	s.From = conn.Addr()
	for _, c := range s.Controllers {
		if c.ID == s.Leader && c.Address != "" {
			leader, err := dialController([]string{c.Address})
			if err != nil {
				return err
			}
			defer leader.Close()
			conn, s.From = leader, c.ID
		}
	}
	r, err := controllerv1.NewControllerServiceClient(conn).Status(ctx, &controllerv1.StatusRequest{})
	if err != nil {
		return err
	}
	s.Topics, s.Groups = r.GetTopics(), r.GetGroups()
	for _, h := range r.GetShards() {
		s.BrokerGroups = append(s.BrokerGroups, brokerGroupOf(h))
		var master *controllerv1.ReplicaReport
		for _, b := range h.GetReplicas() {
			if b.GetId() == h.GetMaster() {
				master = b.GetReport()
			}
		}
		for _, b := range h.GetReplicas() {
			one := brokerStatus{Group: h.GetName(), ID: b.GetId(), Role: "replica", InSync: slices.Contains(h.GetSyncStateSet(), b.GetId()), Epoch: h.GetEpoch(), Address: b.GetAddress(), Unclean: b.GetUnclean(), Learner: b.GetLearner()}
			one.said(b.GetReport(), master)
			if one.Learner {
				one.Role = "learner"
			}
			if b.GetId() == h.GetMaster() {
				live := h.GetLive()
				one.Role, one.Live = "master", &live
			}
			s.Brokers = append(s.Brokers, one)
		}
	}
	return nil
}

// said takes what a broker said of itself, and its master; nil: nothing lately.
func (b *brokerStatus) said(x, master *controllerv1.ReplicaReport) {
	if x == nil {
		return
	}
	b.HTTP, b.Release, b.Heard, b.FlushP99, b.DiskUsed = x.GetHttpAddress(), x.GetRelease(), new(x.GetAgeMs()), x.FlushP99Us, x.DiskUsedPermille
	b.LogEnd, b.Durable, b.Confirm = new(x.GetWrittenEnd()), new(x.GetDurableEnd()), new(x.GetConfirm())
	if master != nil {
		b.Lag = new(max(0, master.GetWrittenEnd()-x.GetWrittenEnd()))
	}
}

func brokerGroupOf(h *controllerv1.Shard) brokerGroup {
	g := brokerGroup{
		Group: h.GetName(), Epoch: h.GetEpoch(), Master: h.GetMaster(), InSync: h.GetSyncStateSet(), SetVersion: h.GetSetVersion(), ELR: h.GetElr(),
		MinISR: h.GetMinIsr(), Mode: "durable", DataLosses: h.GetDataLosses(), LeaseAge: h.LeaseAgeMs, Stuck: h.GetStuck(),
	}
	if h.GetCommitMode() == controllerv1.CommitMode_COMMIT_MODE_MEMORY {
		g.Mode = "memory"
	}
	if g.InSync == nil {
		g.InSync = []uint32{}
	}
	if g.ELR == nil {
		g.ELR = []uint32{}
	}
	return g
}

// ids lists replicas.
func ids(all []uint32) string {
	if len(all) == 0 {
		return "-"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]")
}
