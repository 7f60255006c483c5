package controller

import (
	"os"
	"path/filepath"

	"github.com/perigee-mq/perigee/controller/registry"
	"github.com/perigee-mq/perigee/controller/state"
)

// Stats are the figures of a controller node for metrics. Nothing here costs a system call per
// message; a scrape may ask at any time after Ready.
type Stats struct {
	Registry       registry.Stats
	Topics, Groups int
	Leads          bool
	// LogBytes is the size of raft.db, -1 if it is unknown.
	LogBytes int64
	// Raft are the figures of the Raft library, by its own names.
	Raft map[string]string
}

// Stats returns the figures of the moment. Only after Ready.
func (c *Controller) Stats() Stats {
	s := Stats{Registry: c.reg.Stats(), Leads: c.node.Leader() == c.o.ID, LogBytes: -1, Raft: c.node.Stats()}
	c.node.View(func(st *state.State) { s.Topics, s.Groups, _ = st.Len() })
	if info, err := os.Stat(filepath.Join(c.o.DataDir, "raft.db")); err == nil {
		s.LogBytes = info.Size()
	}
	return s
}
