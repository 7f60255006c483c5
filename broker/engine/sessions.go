package engine

import (
	"container/heap"

	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/store/record"
)

// sessions knows when each client was last heard from. It is soft state: after a start every client
// of the log gets a fresh timeout, since official clients come back only with their next heartbeat.
type sessions struct {
	last map[record.ClientNum]int64 // lease clock, ms
	ends endHeap                    // candidates; a client heard from since is looked at again later
}

func (s *sessions) init() { s.last = map[record.ClientNum]int64{} }

// load gives every client that the log knows a fresh timeout.
func (s *sessions) load(w *writer) {
	w.views.pop.EachClient(func(n record.ClientNum, _ string) { s.heard(w, n) })
}

// heard notes a sign of life.
func (s *sessions) heard(w *writer, n record.ClientNum) {
	if _, known := s.last[n]; !known {
		heap.Push(&s.ends, sessionEnd{at: w.lease + w.e.o.SessionTimeout.Milliseconds(), client: n})
	}
	s.last[n] = w.lease
}

// forget drops a client whose session has ended.
func (s *sessions) forget(n record.ClientNum) { delete(s.last, n) }

// next is when the next session may end.
func (s *sessions) next() (int64, bool) {
	if len(s.ends) == 0 {
		return 0, false
	}
	return s.ends[0].at, true
}

// endSessions records the end of sessions that nobody has reported for too long.
func (w *writer) endSessions() {
	s := &w.live
	for len(s.ends) > 0 && s.ends[0].at <= w.lease {
		c := heap.Pop(&s.ends).(sessionEnd)
		last, known := s.last[c.client]
		if !known {
			continue
		}
		if at := last + w.e.o.SessionTimeout.Milliseconds(); at > w.lease {
			heap.Push(&s.ends, sessionEnd{at: at, client: c.client})
			continue
		}
		if !w.hasSpace(space.Broker, sessionEndBytes) { // later: an append that finds no room ends the log
			heap.Push(&s.ends, sessionEnd{at: w.lease + noSpacePause, client: c.client})
			continue
		}
		w.endSession(c.client, w.lease)
	}
}

// noSpacePause is how long the end of a session that cannot be recorded is put off, ms.
const noSpacePause = 1000

// sessionEnd is when a client's session ends if nothing is heard.
type sessionEnd struct {
	at     int64
	client record.ClientNum
}

type endHeap []sessionEnd

func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h endHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endHeap) Push(x any)        { *h = append(*h, x.(sessionEnd)) }
func (h *endHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
