package controller

import (
	"errors"
	"fmt"
)

var errStarting = errors.New("the controller is starting: it reads its state or waits for a leader; if that lasts, look whether the other controllers run and --raft-addr is right")

// Healthy tells why this controller should get no calls now, nil if it should: it has not started, or no
// controller leads.
func (c *Controller) Healthy() error {
	select {
	case <-c.ready:
	default:
		return errStarting
	}
	if c.node.Leader() == "" {
		return fmt.Errorf("controller %s knows no leader: brokers and proxies go on with what they know, changes wait; start the other controllers", c.o.ID)
	}
	return nil
}
