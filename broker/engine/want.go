package engine

import "github.com/perigee-mq/perigee/store/record"

// Prefixes of the topics that brokers make for themselves.
const (
	deadPrefix = "%DLQ%" // dead letters of the group whose name follows
	txnPrefix  = "%TXN%" // transactions of the topic whose name follows, which nobody has ended
)

// wantAgain is how long after it was asked for a topic is asked for again, ms.
const wantAgain = 3000

// wanted are topics of the broker's own that do not exist here yet: when each was asked for last, on the
// lease clock. It is soft state: what needs a topic asks again.
type wanted map[string]int64

// wantTopic returns the topic of the broker's own that has this name, nil if it does not exist here yet:
// then the controller is asked for it, again every few seconds for as long as somebody wants it.
func (w *writer) wantTopic(name string) *topicState {
	if t := w.topics.byName[name]; t != nil {
		return t
	}
	if last, asked := w.wanted[name]; asked && w.lease < last+wantAgain {
		return nil
	}
	w.wanted[name] = w.lease
	if f := w.e.o.Events.WantTopic; f != nil {
		f(name)
	}
	return nil
}

// own puts a topic into the index of names, and lets go on what has waited for it.
func (t *topics) own(s *topicState) {
	t.byName[s.def.Name] = s
	if _, was := t.w.wanted[s.def.Name]; was {
		delete(t.w.wanted, s.def.Name)
		t.w.graves.lookAgain(t.w.lease)
	}
}

// disown takes a deleted topic out of the index, unless another one has its name by now.
func (t *topics) disown(id record.TopicID, s *topicState) {
	if is := t.byName[s.def.Name]; is != nil && is.def.ID == id {
		delete(t.byName, s.def.Name)
	}
}
