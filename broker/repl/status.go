package repl

import (
	"time"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/store/record"
)

// LeaderStatus is what a master knows of its group, for metrics and people.
type LeaderStatus struct {
	Epoch                     record.Epoch
	Confirm, Written, Durable record.Pos
	Set                       []quorum.Member // S, as the controller confirmed it
	SetVersion                uint64
	MinISR                    int             // copies before anything is confirmed
	Proposed                  []quorum.Member // nil if no change of S is asked for
	Peers                     []PeerStatus    // the other replicas that are known
	Waits                     []WaitStatus    // why not all is confirmed; empty if all is
}

// PeerStatus is one other replica.
type PeerStatus struct {
	quorum.Peer
	// LagBytes is what is written and not acked; -1 without an ack in a session.
	LagBytes int64
	// Lag is how long ago it had acked all that there was when it was sent something; 0 if it has all, -1 without an ack
	// in a session.
	Lag time.Duration
	// InFlight is what was sent and not acked; -1 without a session.
	InFlight int64
}

// WaitStatus is something that the confirm offset waits for, and how long it has; -1: not known.
type WaitStatus struct {
	quorum.Wait
	Age time.Duration
}

// Status says how the group stands; false before the epoch has begun, and when it is over.
func (l *Leader) Status() (s LeaderStatus, ok bool) {
	ran := l.ask(func() {
		if l.core == nil {
			return
		}
		ok, s = true, l.status()
	})
	return s, ok && ran
}

// status runs on the goroutine of Run.
func (l *Leader) status() LeaderStatus {
	c, now := l.core, l.now()
	s := LeaderStatus{Epoch: l.epoch, Confirm: c.Confirm(), Durable: l.o.CommitLog.Durable(), Written: l.o.CommitLog.Written()}
	set, version := c.Set()
	s.Set, s.SetVersion, s.MinISR = append(s.Set, set...), version, c.MinISR()
	if p, ok := c.Pending(); ok {
		s.Proposed = append(s.Proposed, p.Set...)
	}
	sent := map[quorum.Session]int64{}
	for _, o := range *l.sessions.Load() {
		sent[o.id] = o.sent.Load() - o.written.Load()
	}
	for _, p := range c.Peers(nil) {
		t := PeerStatus{Peer: p, LagBytes: -1, Lag: -1, InFlight: -1}
		if bytes, ok := sent[p.Session]; ok {
			t.InFlight = bytes
		}
		if p.Acked {
			end := p.Durable
			if l.Memory() {
				end = p.Written
			}
			if t.LagBytes, t.Lag = int64(s.Written-end), 0; t.LagBytes > 0 {
				t.Lag = max(0, now-p.CaughtUp)
			}
		}
		s.Peers = append(s.Peers, t)
	}
	for _, w := range c.Waits(nil) {
		age := time.Duration(-1)
		if w.Since > 0 {
			age = max(0, now-w.Since)
		}
		s.Waits = append(s.Waits, WaitStatus{w, age})
	}
	return s
}
