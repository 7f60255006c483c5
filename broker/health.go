package broker

import "errors"

var errStarting = errors.New("the broker is starting: it recovers its log or waits for the controller")

// Live tells why this process should be ended, nil if it works.
func (b *Broker) Live() error {
	if e := b.running.Load(); e != nil {
		return e.Failure()
	}
	return nil
}

// Healthy tells why this broker should get no work now, nil if it should.
func (b *Broker) Healthy() error {
	select {
	case <-b.ready:
	default:
		return errStarting
	}
	return b.Live()
}
