package broker

import (
	"errors"
	"fmt"

	"github.com/perigee-mq/perigee/broker/engine"
	"github.com/perigee-mq/perigee/broker/repl/follower"
)

var (
	errStarting  = errors.New("the broker is starting: it waits for the controller")
	errStopping  = errors.New("the broker is stopping")
	errPromoting = errors.New("this replica was elected: it waits until enough of the others have confirmed its epoch")
	errDefining  = errors.New("this replica leads, and is logging topics and groups as the controller defines them")
	errResting   = errors.New("this replica ends what it has led, to follow another one")
)

// Progress tells how far the recovery of the broker's views has come; when it is over, what was read for it.
func (b *Broker) Progress() engine.Progress { return b.recovery.Load().Progress() }

// Role tells what this replica does now.
func (b *Broker) Role() Role { return b.now.Load().role }

// Live tells why this process should be ended, nil if it works.
func (b *Broker) Live() error {
	if e := b.now.Load().engine; e != nil {
		return e.Failure()
	}
	return nil
}

// Healthy tells why this broker does not do its work now, nil if it does: it leads, or follows and has what its
// master has.
func (b *Broker) Healthy() error {
	if b.stopping.Load() {
		return errStopping
	}
	switch p := b.now.Load(); p.role {
	case Leading:
		return b.Live()
	case Promoting:
		return errPromoting
	case Defining:
		return errDefining
	case Resting:
		return errResting
	case Following, Copying:
		return p.following()
	}
	if err := b.Progress().Err(); err != nil {
		return err
	}
	return errStarting
}

// following tells what keeps a follower from being as good as its master.
func (p *present) following() error {
	if p.follower == nil {
		return errStarting
	}
	s, ok := p.follower.Status()
	switch {
	case !ok:
		return errStarting
	case s.DiskFull:
		return fmt.Errorf("this replica follows %s, and its disk is full: it does not count for what is acknowledged until there is room", s.Address)
	case s.State == follower.InSync && p.role == Following:
		return nil
	case s.Address == "":
		return fmt.Errorf("this replica knows no master of epoch %d: another one has to be elected", s.Promised)
	case s.LagBytes >= 0:
		return fmt.Errorf("this replica is %s the log of %s: %d bytes are left", map[bool]string{true: "copying", false: "catching up with"}[p.role == Copying], s.Address, s.LagBytes)
	}
	return fmt.Errorf("this replica does not reach its master at %s; the log says why", s.Address)
}
