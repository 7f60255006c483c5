package server

import (
	"context"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/proxy/call"
	"github.com/perigee-mq/perigee/proxy/failover"
)

// steady is a call that one shard answers. It outlives the master: it is made again at the next one, within the time of
// its caller. It may be made again also where the first try may have taken effect, since the second one then changes
// nothing; docs/outcomes.md says so of each call.
type steady struct {
	s    *Server
	call failover.Call
	try  failover.Try
	ask  func(h home, done func(error)) // must not block
	then func(error)
	// ends tells that the call itself may end the lease that its handle names. After a try that may have done that, "no such
	// lease" does not say that nothing happened.
	ends bool
}

// steadily makes a call and hands its error to then, once.
func (s *Server) steadily(c call.Info, shard brokerapi.ShardID, ask func(h home, done func(error)), then func(error)) {
	k := &steady{s: s, call: failover.Call{Shard: shard, Deadline: s.deadline(c), Repeat: true}, ask: ask, then: then}
	k.make()
}

// ending is steadily for a call that may end the lease of its handle, and is no success when made again after that.
func (s *Server) ending(c call.Info, shard brokerapi.ShardID, ask func(h home, done func(error)), then func(error)) {
	k := &steady{s: s, call: failover.Call{Shard: shard, Deadline: s.deadline(c), Repeat: true}, ask: ask, then: then, ends: true}
	k.make()
}

func (k *steady) make() {
	h, err := k.s.shard(k.call.Shard)
	if err != nil {
		k.answered(err)
		return
	}
	k.ask(h, k.answered)
}

func (k *steady) answered(err error) {
	if err == nil {
		k.then(nil)
		return
	}
	if earlier := k.try.Earlier(); k.ends && earlier != nil && mqerr.KindOf(err) == mqerr.HandleInvalid {
		k.then(earlier)
		return
	}
	if !k.s.o.Masters.Again(k.call, &k.try, err, k.resume) {
		k.then(k.try.Result(err))
	}
}

func (k *steady) resume(err error) {
	if err != nil {
		k.then(err)
		return
	}
	k.make()
}

// asked makes a call that blocks, in the same way.
func (s *Server) asked(ctx context.Context, shard brokerapi.ShardID, f func(b brokerapi.Broker) error) error {
	return s.o.Masters.Do(ctx, failover.Call{Shard: shard, Repeat: true}, func() error {
		h, err := s.shard(shard)
		if err != nil {
			return err
		}
		return f(h.broker)
	})
}

// single is the error of a call about one handle: that of the call, or that of the handle.
func single(errs func() []error, err error) error {
	if err != nil {
		return err
	}
	all := errs()
	if len(all) != 1 {
		return mqerr.New(mqerr.Internal, "broker answered %d results for 1 handle", len(all))
	}
	return all[0]
}
