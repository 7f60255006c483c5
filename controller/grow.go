package controller

import (
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
)

// growthEvery is how often growth is looked for that has lasted for too long.
const growthEvery = 5 * time.Second

// endGrowth gives up the growth of topics that nobody has ended in time: until then their brokers refuse
// messages.
func (c *Controller) endGrowth(now time.Time) {
	if c.node.Leader() != c.o.ID {
		return
	}
	var overdue []state.GrowTopic
	c.node.View(func(s *state.State) { overdue = s.Overdue(now.UnixMilli()) })
	for _, cmd := range overdue {
		c.o.Log.Warn("a topic was not drained in time: it keeps its queues and takes messages with a message group again", slog.String("topic", cmd.Name))
		c.propose(cmd)
	}
}
