package ctl

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/broker/engine"
)

// TestDefinitionsOfEachTerm: who begins to lead gets the whole set as it is by then, and afterwards what changes; one
// that does not lead gets nothing, and nothing counts as logged.
func TestDefinitionsOfEachTerm(t *testing.T) {
	f, c := start(t)
	s := NewSession(c, 5, 2, Term{Incarnation: 11})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	require.Zero(t, next(t, f.beats).GetEpoch())

	f.script <- update(&controllerv1.Definitions{Full: true, Version: 9, Topics: []*controllerv1.Topic{topicProto(1, 5, 4), topicProto(2, 5, 4)}})
	f.script <- update(&controllerv1.Definitions{Version: 12, DeletedTopics: []uint32{1}, Groups: []*controllerv1.Group{{Id: 8, Name: "g"}}})
	f.script <- step{update: &controllerv1.BrokerUpdate{Shard: shardProto()}}
	for term := range 2 {
		l := &logger{got: make(chan *engine.Definitions, 16), errs: make(chan error, 16)}
		defined := make(chan struct{}, 16)
		s.Lead(uint64(20+term), l, func() { defined <- struct{}{} })
		for whole := next(t, l.got); len(whole.Groups) == 0; whole = next(t, l.got) { // the changes may be on their way
			require.True(t, whole.Full || whole.Version == 12)
		}
		next(t, defined)
		want := uint64(12 + term)
		for b := next(t, f.beats); ; b = next(t, f.beats) {
			if b.GetEpoch() == uint64(20+term) && b.GetAppliedVersion() == want {
				break
			}
			require.LessOrEqual(t, b.GetAppliedVersion(), want)
		}
		if term == 0 {
			s.Rest()
			for b := next(t, f.beats); ; b = next(t, f.beats) {
				if b.GetEpoch() == 0 {
					require.Zero(t, b.GetAppliedVersion())
					break
				}
			}
			f.script <- update(&controllerv1.Definitions{Version: 13})
			f.script <- step{update: &controllerv1.BrokerUpdate{Shard: shardProto()}}
			require.Empty(t, l.got)
			continue
		}
		f.script <- update(&controllerv1.Definitions{Version: 14, DeletedGroups: []uint32{8}})
		change := next(t, l.got)
		for change.Version < 14 {
			change = next(t, l.got)
		}
		require.False(t, change.Full)
		require.Empty(t, defined, "once in a term")
	}
}

// TestResign: the controller is told that an epoch is over until it shows that it knows.
func TestResign(t *testing.T) {
	f, c := start(t)
	s := NewSession(c, 5, 2, Term{Incarnation: 11, Epoch: 7})
	s.Follows = true
	s.Lead(7, &logger{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-done) })
	resigning := func(b *controllerv1.BrokerHeartbeat) bool { return b.GetResigning() && b.GetEpoch() == 7 }
	s.Resign(7, false)
	s.Rest()
	for b := next(t, f.beats); ; b = next(t, f.beats) {
		if resigning(b) {
			break
		}
	}
	f.script <- step{update: &controllerv1.BrokerUpdate{Shard: shardProto()}} // it does not know yet
	f.script <- step{over: true}                                              // and is away for a while
	for b := next(t, f.beats); ; b = next(t, f.beats) {
		if b.GetHello() != nil && resigning(b) {
			break
		}
	}
	gone := shardProto()
	gone.Master, gone.MasterIncarnation = 0, 0
	f.script <- step{update: &controllerv1.BrokerUpdate{Shard: gone}}
	for b := next(t, f.beats); ; b = next(t, f.beats) {
		if !b.GetResigning() {
			require.Zero(t, b.GetEpoch())
			return
		}
	}
}

// slow logs definitions when the test lets it.
type slow struct {
	began chan struct{}
	free  chan struct{}
}

func (s *slow) Define(context.Context, *engine.Definitions) error {
	s.began <- struct{}{}
	<-s.free
	return nil
}

// TestLateDefinition: what an engine has logged when its term is over counts for nothing in the next one.
func TestLateDefinition(t *testing.T) {
	d := newDefiner(5, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	defer running.Wait()
	defer cancel()
	old := &slow{began: make(chan struct{}), free: make(chan struct{})}
	defined := make(chan struct{}, 2)
	d.lead(old, func() { defined <- struct{}{} })
	require.NoError(t, d.take(&controllerv1.Definitions{Full: true, Version: 9}))
	next(t, old.began)
	again := &slow{began: make(chan struct{}), free: make(chan struct{})}
	d.lead(again, func() { defined <- struct{}{} })
	close(old.free)
	next(t, again.began)
	require.Zero(t, d.version())
	require.Empty(t, defined)
	close(again.free)
	next(t, defined)
	require.EqualValues(t, 9, d.version())
}
