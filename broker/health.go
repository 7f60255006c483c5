package broker

import (
	"errors"

	"github.com/perigee-mq/perigee/broker/engine"
)

var (
	errStarting = errors.New("the broker is starting: it waits for the controller")
	errStopping = errors.New("the broker is stopping")
)

// Progress tells how far the recovery of the broker's views has come; when it is over, what was read for it.
func (b *Broker) Progress() engine.Progress { return b.recovery.Progress() }

// Live tells why this process should be ended, nil if it works.
func (b *Broker) Live() error {
	if e := b.running.Load(); e != nil {
		return e.Failure()
	}
	return nil
}

// Healthy tells why this broker should get no work now, nil if it should.
func (b *Broker) Healthy() error {
	if b.stopping.Load() {
		return errStopping
	}
	select {
	case <-b.ready:
	default:
		if err := b.Progress().Err(); err != nil {
			return err
		}
		return errStarting
	}
	return b.Live()
}
