package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/store/record"
)

func at(q, off int) brokerapi.SetOffset {
	return brokerapi.SetOffset{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Queue: brokerapi.QueueID(q), Offset: brokerapi.QueueOffset(off)}
}

func (b *bench) setOffsets(all ...brokerapi.SetOffset) error {
	_, err := b.proxy.SetOffsets(b.t.Context(), &brokerapi.SetOffsetsRequest{Offsets: all})
	return err
}

func (b *bench) offset(of brokerapi.OffsetOf, q int, ms int64) (int64, error) {
	r, err := b.proxy.Offset(b.t.Context(), &brokerapi.OffsetRequest{Of: of, Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Queue: brokerapi.QueueID(q), TimeMS: ms})
	if err != nil {
		return -1, err
	}
	return int64(r.Offset), nil
}

func (b *bench) mustOffset(of brokerapi.OffsetOf, q int, ms int64) int64 {
	b.t.Helper()
	off, err := b.offset(of, q, ms)
	require.NoError(b.t, err)
	return off
}

func (b *bench) reset(req brokerapi.ResetRequest) []brokerapi.ResetQueue {
	b.t.Helper()
	req.Topic, req.Group = brokerapi.TopicID(topicSync), brokerapi.GroupID(groupA)
	r, err := b.proxy.Reset(b.t.Context(), &req)
	require.NoError(b.t, err)
	return r.Queues
}

// sameAfterRestart restarts twice: from the log alone, and from a checkpoint with nothing behind it.
func (b *bench) sameAfterRestart() {
	b.t.Helper()
	before := b.state()
	b.again()
	b.sameViews(before)
	_, err := b.engine.Close()
	require.NoError(b.t, err)
	require.NoError(b.t, b.store.Close())
	b.engine = nil
	b.mustOpen()
	b.sameViews(before)
}

// sameViews compares all sections but the one with the epoch.
func (b *bench) sameViews(before map[string]string) {
	b.t.Helper()
	now := b.state()
	for name, data := range before {
		if name != sectionBase && name != sectionEpochs {
			require.Equal(b.t, data, now[name], name)
		}
	}
}

func TestOffsets(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendTo(topicSync, "", "0", "1", "2")
	_, err := b.offset(brokerapi.OffsetOfGroup, 0, 0)
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
	require.NoError(t, b.setOffsets(at(0, 2), at(1, 0)))
	require.Equal(t, int64(2), b.mustOffset(brokerapi.OffsetOfGroup, 0, 0))
	require.Equal(t, int64(0), b.mustOffset(brokerapi.OffsetOfGroup, 1, 0))
	b.sameAfterRestart()
	require.Equal(t, int64(2), b.mustOffset(brokerapi.OffsetOfGroup, 0, 0))

	before := b.state()
	for name, c := range map[string]struct {
		bad  brokerapi.SetOffset
		kind mqerr.Kind
	}{
		"negative": {at(0, -1), mqerr.Invalid},
		"beyond":   {at(0, 4), mqerr.Invalid},
		"queue":    {at(4, 0), mqerr.NotFound},
		"group":    {brokerapi.SetOffset{Topic: brokerapi.TopicID(topicSync), Group: 99}, mqerr.GroupNotFound},
		"topic":    {brokerapi.SetOffset{Topic: 99, Group: brokerapi.GroupID(groupA)}, mqerr.TopicNotFound},
	} {
		err := b.setOffsets(at(0, 1), c.bad)
		require.True(t, mqerr.Is(err, c.kind), "%s: %v", name, err)
	}
	require.Equal(t, before, b.state(), "a request that is refused stores nothing of it")
	require.True(t, mqerr.Is(b.setOffsets(make([]brokerapi.SetOffset, offsetsMax+1)...), mqerr.Invalid))

	b.mustPop(topicSync, groupB)
	r, err := b.proxy.Offset(t.Context(), &brokerapi.OffsetRequest{Of: brokerapi.OffsetOfGroup, Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB)})
	require.NoError(t, err)
	require.Zero(t, r.Offset, "the floor of a group that receives")

	require.NoError(t, b.engine.Define(t.Context(), &Definitions{DeletedGroups: []record.GroupID{groupA}, Version: 9}))
	_, err = b.offset(brokerapi.OffsetOfGroup, 0, 0)
	require.True(t, mqerr.Is(err, mqerr.GroupNotFound), "%v", err)
	b.sameAfterRestart()
}

// TestOffsetsCoalesce: many positions of one turn are one record, in which the last one of a queue counts.
func TestOffsetsCoalesce(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendTo(topicSync, "", "0", "1", "2", "3")
	before := b.engine.log.Written()
	release := b.hold()
	errs := make(chan error, 100)
	for i := range 100 {
		s := b.proxy.(*session) //nolint:forcetypeassert // the direct one
		s.e.submit(&setOffsetsOp{req: &brokerapi.SetOffsetsRequest{Offsets: []brokerapi.SetOffset{at(0, i%4), at(1+i%2, 0)}}, done: func(_ struct{}, err error) { errs <- err }})
	}
	release()
	for range 100 {
		require.NoError(t, <-errs)
	}
	require.Less(t, int(b.engine.log.Written()-before), 200)
	require.Equal(t, int64(3), b.mustOffset(brokerapi.OffsetOfGroup, 0, 0))
	b.sameAfterRestart()
	require.Equal(t, int64(3), b.mustOffset(brokerapi.OffsetOfGroup, 0, 0))
}

// TestOffsetByTime is exact by store time.
func TestOffsetByTime(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	start := b.clock.Wall()
	for i := range 50 {
		b.sendTo(topicSync, "", fmt.Sprint(i))
		b.clock.advance(time.Duration(1+i%3) * time.Millisecond)
	}
	ms := start
	for i := range 50 {
		require.Equal(t, int64(i), b.mustOffset(brokerapi.OffsetAtTime, 0, ms))
		ms += int64(1 + i%3)
		if i%3 > 0 {
			require.Equal(t, int64(i+1), b.mustOffset(brokerapi.OffsetAtTime, 0, ms-1))
		}
	}
	require.Equal(t, int64(0), b.mustOffset(brokerapi.OffsetAtTime, 0, 0))
	require.Equal(t, int64(50), b.mustOffset(brokerapi.OffsetAtTime, 0, ms+1000))
	require.Equal(t, int64(0), b.mustOffset(brokerapi.OffsetBegin, 0, 0))
	require.Equal(t, int64(50), b.mustOffset(brokerapi.OffsetEnd, 0, 0))
	require.Equal(t, int64(0), b.mustOffset(brokerapi.OffsetEnd, 1, 0))
	_, err := b.offset(9, 0, 0)
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	_, err = b.offset(brokerapi.OffsetEnd, 4, 0)
	require.True(t, mqerr.Is(err, mqerr.NotFound), "%v", err)
}

// TestReset: what is in flight ends, nothing from before can touch what comes again, and it takes effect at once.
func TestReset(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendTo(topicSync, "", "0", "1", "2", "3", "4")
	old := b.mustPop(topicSync, groupA)
	require.Len(t, old, 5)
	require.Equal(t, []error{nil}, b.ack(topicSync, groupA, old[1]))
	require.NoError(t, b.setOffsets(at(0, 5)))

	zero := func(q int) brokerapi.ResetQueue { return brokerapi.ResetQueue{Queue: brokerapi.QueueID(q)} }
	want := []brokerapi.ResetQueue{{From: 0, To: 3, InFlight: 4, Dropped: 2}, zero(1), zero(2), zero(3)}
	before := b.state()
	require.Equal(t, want, b.reset(brokerapi.ResetRequest{To: brokerapi.ResetSkip, Skip: 3, DryRun: true}))
	require.Equal(t, before, b.state(), "a dry run changes nothing")
	require.Empty(t, b.mustPop(topicSync, groupA))
	arm := brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Arm: true}
	none, more, err := b.pop(arm)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, none)

	require.Equal(t, want, b.reset(brokerapi.ResetRequest{To: brokerapi.ResetSkip, Skip: 3}))
	require.Equal(t, brokerapi.Ready{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Count: 2}, <-b.ready)
	require.Equal(t, int64(3), b.mustOffset(brokerapi.OffsetOfGroup, 0, 0), "the position of pulls moves, too")
	b.sameAfterRestart()
	for _, e := range b.ack(topicSync, groupA, old[3], old[4]) {
		require.True(t, mqerr.Is(e, mqerr.HandleInvalid), "%v", e)
	}
	again := b.mustPop(topicSync, groupA)
	require.Equal(t, []string{"3", "4"}, bodies(again))
	require.Equal(t, int32(1), again[0].Attempt)
	for _, e := range append(b.ack(topicSync, groupA, old[3], old[4]), b.change(topicSync, groupA, time.Second, brokerapi.ChangeLease, old...)...) {
		require.True(t, mqerr.Is(e, mqerr.HandleInvalid), "%v", e)
	}
	require.Equal(t, []error{nil, nil}, b.ack(topicSync, groupA, again...))
	b.sameAfterRestart()

	require.Equal(t, brokerapi.ResetQueue{From: 5, To: 0, Again: 5}, b.reset(brokerapi.ResetRequest{To: brokerapi.ResetBegin})[0])
	require.Len(t, b.mustPop(topicSync, groupA), 5)
	require.Equal(t, brokerapi.ResetQueue{From: 0, To: 5, InFlight: 5, Dropped: 5}, b.reset(brokerapi.ResetRequest{To: brokerapi.ResetEnd})[0])
	require.Empty(t, b.mustPop(topicSync, groupA))
	b.clock.advance(time.Hour)
	require.Empty(t, b.mustPop(topicSync, groupA), "the leases are gone")
	b.sameAfterRestart()
}

// TestResetToTime goes to the first message of that time in every queue.
func TestResetToTime(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.sendTo(topicSync, "", "old")
	b.clock.advance(time.Second)
	b.sendTo(topicSync, "", "new")
	require.Equal(t, brokerapi.ResetQueue{From: 0, To: 1, Dropped: 1}, b.reset(brokerapi.ResetRequest{To: brokerapi.ResetTime, TimeMS: b.clock.Wall()})[0])
	require.Equal(t, []string{"new"}, bodies(b.mustPop(topicSync, groupA)))
	for _, req := range []brokerapi.ResetRequest{{}, {To: 9}, {To: brokerapi.ResetSkip, Skip: -1}} {
		req.Topic, req.Group = brokerapi.TopicID(topicSync), brokerapi.GroupID(groupA)
		_, err := b.proxy.Reset(t.Context(), &req)
		require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	}
}

// TestResetsAndRestarts mixes all that moves a group, and restarts in between.
func TestResetsAndRestarts(t *testing.T) {
	seed := testseed.First(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	b := newBench(t, Options{CheckpointBytes: 20 << 10})
	b.mustOpen()
	b.define()
	sent := 0
	held := map[int64]got{}
	for range 300 {
		switch rng.IntN(8) {
		case 0, 1:
			b.sendTo(topicSync, "", fmt.Sprint(sent))
			sent++
		case 2, 3:
			for _, m := range b.mustPop(topicSync, groupA) {
				held[int64(m.Offset)] = m
			}
		case 4:
			for off, m := range held {
				b.ack(topicSync, groupA, m)
				delete(held, off)
				break
			}
		case 5:
			require.NoError(t, b.setOffsets(at(0, rng.IntN(sent+1))))
		case 6:
			to := brokerapi.ResetTo(1 + rng.IntN(4))
			dry := brokerapi.ResetRequest{To: to, TimeMS: b.clock.Wall() - int64(rng.IntN(1000)), Skip: int64(rng.IntN(5)), DryRun: true}
			want := b.reset(dry)
			dry.DryRun = false
			require.Equal(t, want, b.reset(dry))
			st := make(chan [2]int64, 1)
			require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
				q := w.groupQueue(w.topics.byID[topicSync], w.views.groups.Get(groupA), 0)
				st <- [2]int64{int64(q.Floor), q.InFlight}
			}))
			require.Equal(t, [2]int64{int64(want[0].To), 0}, <-st)
		case 7:
			b.clock.advance(time.Duration(rng.IntN(20_000)) * time.Millisecond)
			if rng.IntN(4) == 0 {
				b.sameAfterRestart()
			}
		}
	}
	b.sameAfterRestart()
}
