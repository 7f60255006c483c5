package txn

import "github.com/perigee-mq/perigee/store/record"

// Verdict is what became of a half message.
type Verdict struct {
	Topic  record.TopicID
	ID     ID
	Pos    record.Pos // of the half message
	Digest uint64     // as Half.Digest
	Stored int64      // the half message, ms since 1970
	Ended  int64      // ms since 1970
	Source record.TxnSource
	Commit bool // else it was rolled back
}

// verdicts are the newest verdicts in the order in which they were given: a ring that grows to what is
// remembered.
type verdicts struct {
	ring  []Verdict
	first int
	n     int
	byID  map[uint64]uint32 // index of the newest by key
}

func newVerdicts() verdicts { return verdicts{byID: map[uint64]uint32{}} }

func (v *verdicts) at(i int) *Verdict { return &v.ring[(v.first+i)%len(v.ring)] }

func (v *verdicts) add(x Verdict) {
	if v.n == len(v.ring) {
		v.grow()
	}
	i := (v.first + v.n) % len(v.ring)
	v.ring[i] = x
	v.n++
	v.byID[keyOf(x.Topic, x.ID)] = uint32(i)
}

// grow doubles the ring; the oldest one comes to its front.
func (v *verdicts) grow() {
	ring := make([]Verdict, max(16, 2*len(v.ring)))
	for i := range v.n {
		ring[i] = *v.at(i)
		v.byID[keyOf(ring[i].Topic, ring[i].ID)] = uint32(i)
	}
	v.ring, v.first = ring, 0
}

// forget drops the oldest ones beyond most, and those given before a time.
func (v *verdicts) forget(most int, before int64) {
	for v.n > 0 && (v.n > most || v.ring[v.first].Ended < before) {
		x := &v.ring[v.first]
		if key := keyOf(x.Topic, x.ID); v.byID[key] == uint32(v.first) {
			delete(v.byID, key)
		}
		*x = Verdict{}
		v.first = (v.first + 1) % len(v.ring)
		v.n--
	}
	if v.n == 0 {
		v.ring, v.first = nil, 0
	}
}

func (v *verdicts) get(topic record.TopicID, id ID) (Verdict, bool) {
	i, ok := v.byID[keyOf(topic, id)]
	if !ok || v.ring[i].Topic != topic || v.ring[i].ID != id {
		return Verdict{}, false
	}
	return v.ring[i], true
}
