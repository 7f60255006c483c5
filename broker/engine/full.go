package engine

import (
	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/pop"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Bounds on leased messages. A receive that meets one finds nothing, and hears when there is room again: the
// in-flight table counts what a group and each of its clients has leased, and says when a watched count falls.
// A lease that is renewed after its end counts again; nobody is refused that.

// fulls is who met a bound and wants to hear.
type fulls struct {
	waits map[pop.Holder]map[fullWait]struct{}
	freed []freed // of this turn
}

// fullWait is one proxy that waits for one client's or one group's room on a topic.
type fullWait struct {
	topic  *topicState
	from   *session    // nil for a lite client, which knows its own
	lite   *liteClient // nil unless the group reads lite topics
	client uint64      // brokerapi.HashClient, 0 for the group
}

type freed struct {
	pop.Holder
	wait fullWait
}

// inFlightBounds are the bounds of a group and of one of its clients, 0 for none.
func (w *writer) inFlightBounds(g *group.Definition) (all, client int64) {
	return or(g.MaxInFlight, w.e.o.MaxInFlight), or(g.MaxInFlightClient, w.e.o.MaxInFlightClient)
}

// room is how many more messages may be leased for a client of a group (0: for any), and whose bound says so.
func (w *writer) room(g *group.Definition, client record.ClientNum) (int64, pop.Holder) {
	all, one := w.inFlightBounds(g)
	who := pop.Holder{Group: g.ID}
	left := int64(popMax)
	if all > 0 {
		left = min(left, all-w.views.pop.Leased(who))
	}
	if one > 0 && left > 0 && client != 0 {
		who.Client = client
		left = min(left, one-w.views.pop.Leased(who))
	} else if one > 0 && client == 0 {
		left = min(left, one) // a client that is not known holds nothing
	}
	return max(0, left), who
}

// tableFull tells that no further message may be handed out for the first time, whatever the group.
func (w *writer) tableFull() bool { return w.manyInFlight() || w.e.o.Pressed() }

func (w *writer) manyInFlight() bool {
	return w.e.o.InFlightTable > 0 && w.views.pop.Len() >= w.e.o.InFlightTable
}

// refuseNew answers a receive that would need a message that nobody had yet, while tableFull says no.
func (w *writer) refuseNew() error {
	if w.manyInFlight() {
		w.e.counts.TableFull.Add(1)
		return mqerr.New(mqerr.Exhausted, "the broker hands out no new messages, since %d of all groups are in flight: retry after a pause", w.views.pop.Len())
	}
	w.e.o.PressedRefused()
	return errPressed
}

// meets answers a receive that may have nothing now.
func (o *popOp) meets(w *writer, t *topicState, g *group.Definition, who pop.Holder) {
	w.e.counts.EmptyPops.Add(1)
	w.e.counts.InFlightFull.Add(1)
	if who.Client == 0 {
		o.outlook(w, t, g)
		return
	}
	wait := fullWait{topic: t, from: o.from, lite: o.lite, client: brokerapi.HashClient(o.req.Client)}
	if o.lite != nil {
		wait.from = nil
		o.armLite(w)
	} else {
		o.full = true
		o.outlook(w, t, g) // what is ready is for others
	}
	if o.req.Arm && o.from != nil && !o.from.closed {
		w.await(who, wait)
	}
}

// await lets a proxy hear when a holder has less leased than now.
func (w *writer) await(who pop.Holder, wait fullWait) {
	w.views.pop.Watch(who)
	if w.full.waits == nil {
		w.full.waits = map[pop.Holder]map[fullWait]struct{}{}
	}
	if w.full.waits[who] == nil {
		w.full.waits[who] = map[fullWait]struct{}{}
	}
	w.full.waits[who][wait] = struct{}{}
}

// awaitGroup lets those who have armed for a group hear when it has less leased.
func (w *writer) awaitGroup(t *topicState, g record.GroupID, c *liteClient) {
	w.await(pop.Holder{Group: g}, fullWait{topic: t, lite: c})
}

// leave forgets a proxy that is gone.
func (f *fulls) leave(s *session) {
	for who, waits := range f.waits {
		for wait := range waits {
			if wait.from == s {
				delete(waits, wait)
			}
		}
		if len(waits) == 0 {
			delete(f.waits, who)
		}
	}
}

// refit lets everybody who waits for room of a group try again: its definition has changed.
func (w *writer) refit(g record.GroupID) {
	for who := range w.full.waits {
		if who.Group == g {
			w.unfill(who)
		}
	}
}

func (w *writer) unfill(who pop.Holder) {
	for wait := range w.full.waits[who] {
		w.full.freed = append(w.full.freed, freed{who, wait})
	}
	delete(w.full.waits, who)
}

// fireFreed adds the events of those who have room again, and notes those whose events come with what is ready.
func (w *writer) fireFreed(events map[*session][]brokerapi.Ready) {
	for _, f := range w.full.freed {
		t := f.wait.topic
		switch {
		case w.topics.byID[t.def.ID] != t:
		case f.wait.lite != nil:
			w.noteLite(f.wait.lite)
		case f.Client == 0:
			if u := t.subs[f.Group]; u != nil { // not that of a deleted group
				w.ready.note(u)
			}
		case !f.wait.from.closed:
			events[f.wait.from] = append(events[f.wait.from], brokerapi.Ready{
				Topic: brokerapi.TopicID(t.def.ID), Group: brokerapi.GroupID(f.Group), Client: f.wait.client, Count: 1,
			})
		}
	}
	clear(w.full.freed)
	w.full.freed = w.full.freed[:0]
}
