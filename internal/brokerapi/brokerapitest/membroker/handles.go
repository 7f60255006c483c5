package membroker

import (
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Ack ends messages.
func (s *session) Ack(req *brokerapi.AckRequest, done func(*brokerapi.AckReply, error)) {
	s.b.mu.Lock()
	errs, err := s.each(&req.Head, req.Topic, req.Group, req.Handles, func(it *item) error {
		it.done = true
		return nil
	})
	s.b.mu.Unlock()
	s.b.o.Later(func() {
		if err != nil {
			done(nil, err)
			return
		}
		done(&brokerapi.AckReply{Errors: errs}, nil)
	})
}

// Change moves the end of leases.
func (s *session) Change(req *brokerapi.ChangeRequest, done func(*brokerapi.ChangeReply, error)) {
	s.b.mu.Lock()
	until := time.Now().Add(req.Invisible)
	errs, err := s.each(&req.Head, req.Topic, req.Group, req.Handles, func(it *item) error {
		if it.done {
			return stale
		}
		it.until, it.session, it.keep = until, false, req.Mode == brokerapi.ChangeKeep
		return nil
	})
	fire := s.b.ready()
	s.b.mu.Unlock()
	s.b.o.Later(func() {
		if err != nil {
			done(nil, err)
			return
		}
		done(&brokerapi.ChangeReply{Errors: errs}, nil)
	})
	fire()
}

var stale = mqerr.New(mqerr.HandleInvalid, "the handle is not of the message's latest delivery")

// each calls f for the messages whose latest lease the handles name. The lock is held.
func (s *session) each(h *brokerapi.Head, id brokerapi.TopicID, group brokerapi.GroupID, handles []brokerapi.Handle, f func(*item) error) ([]error, error) {
	if err := s.usable(h); err != nil {
		return nil, err
	}
	_, u, err := s.sub(id, group)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(handles))
	for i, h := range handles {
		errs[i] = stale
		if h.Queue < 0 || int(h.Queue) >= len(u.items) || h.Offset < 0 || int(h.Offset) >= len(u.items[h.Queue]) {
			continue
		}
		if it := &u.items[h.Queue][h.Offset]; it.lease == h.Lease {
			errs[i] = f(it)
		}
	}
	return errs, nil
}
