package repl

import "github.com/perigee-mq/perigee/store/record"

// shift compares the lease clock of a master with this replica's own. A beat takes time, so what it shows is at or below
// the true difference, and the largest is the nearest one: who goes on with it lets no lease end early.
type shift struct {
	known bool
	epoch record.Epoch // of the master whose clock it is
	ms    int64
}

// heard takes the difference that a beat showed.
func (s *shift) heard(epoch record.Epoch, ms int64) {
	if !s.known || epoch != s.epoch {
		*s = shift{true, epoch, ms}
	}
	s.ms = max(s.ms, ms)
}
