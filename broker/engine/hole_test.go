package engine

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

var holeSeeds = flag.Int("hole.seeds", 0, "how many seeds TestHolesOfAnyKind runs; 0: a few")

// placed is a message with a place, as a log has it.
type placed struct {
	topic record.TopicID
	queue record.QueueID
	off   record.QueueOffset
	body  string
	ref   record.Pos // of the message's record
}

// logOf reads the log of a stopped broker: where each record is, and the messages with their places in order
// of the records that gave them.
func logOf(t *testing.T, fs *memfs.FS) (records []record.Header, messages map[record.Pos]string, places map[record.Pos][]placed, moves map[record.Pos][]record.Pos) {
	t.Helper()
	l, err := commitlog.Open(commitlog.Options{FS: fs, Dir: "data/log", ReadOnly: true})
	require.NoError(t, err)
	defer l.Close()
	messages, places, moves = map[record.Pos]string{}, map[record.Pos][]placed{}, map[record.Pos][]record.Pos{}
	_, _, err = l.ScanPast(l.First(), func(r record.Record) error {
		records = append(records, r.Header)
		switch r.Type {
		case record.TypeMove:
			in, err := record.Unwrap(r)
			require.NoError(t, err)
			moves[in.Pos] = append(moves[in.Pos], r.Pos)
			m, err := messageOf(&in)
			require.NoError(t, err)
			messages[r.Pos], messages[in.Pos] = string(m.Body), string(m.Body)
		case record.TypeMsg, record.TypeDead:
			m, err := messageOf(&r)
			require.NoError(t, err)
			messages[r.Pos] = string(m.Body)
			if m.Offset >= 0 {
				places[r.Pos] = append(places[r.Pos], placed{m.Topic, m.Queue, m.Offset, string(m.Body), r.Pos})
			}
		case record.TypeDeliver:
			d, err := record.DecodeDeliver(r.Body)
			require.NoError(t, err)
			for _, p := range d.Items {
				places[r.Pos] = append(places[r.Pos], placed{d.Topic, p.Queue, p.Offset, messages[p.Ref], p.Ref})
			}
		case record.TypeTxnEnd:
			e, err := record.DecodeTxnEnd(r.Body)
			require.NoError(t, err)
			for _, p := range e.Committed {
				places[r.Pos] = append(places[r.Pos], placed{e.Topic, p.Queue, p.Offset, messages[p.Half], p.Half})
			}
		}
		return nil
	}, func(commitlog.Past) error { t.Error("the log is damaged before the test has done it"); return nil })
	require.NoError(t, err)
	return records, messages, places, moves
}

// flip changes a byte in the middle of a record.
func flip(t *testing.T, fs *memfs.FS, h record.Header, at int) {
	t.Helper()
	base := h.Pos / (1 << 20) * (1 << 20)
	f, err := fs.Open("data/log/" + segment.Name(base))
	require.NoError(t, err)
	one := make([]byte, 1)
	at %= int(h.Size)
	if at/4 == record.SizeOffset/4 { // see commitlog.TestWrongSize
		at = 0
	}
	off := int64(h.Pos-base) + int64(at)
	_, err = f.ReadAt(one, off)
	require.NoError(t, err)
	one[0] ^= 0x10
	_, err = f.WriteAt(one, off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestHolesOfAnyKind damages records of random logs, with every kind of operation in them, and starts on them.
// By default the start is refused and no file is changed. With SkipDamage it comes up, every message whose
// records are whole is where it was, none of those that are lost is returned, and all operations go on; the
// next start needs nobody's word any more.
//
//fault:damage records of every kind are damaged in the middle of the log => by default refused with file and byte; with on-damage skip every other message is there, and nothing that is damaged is returned
func TestHolesOfAnyKind(t *testing.T) {
	seeds := *holeSeeds
	switch {
	case seeds > 0:
	case testing.Short():
		seeds = 4
	default:
		seeds = max(4, 16/raceSlows)
	}
	first := testseed.First(t)
	if *modelSeed != 0 {
		seeds, first = 1, *modelSeed
	}
	kinds := map[record.Type]int{}
	for i := range seeds {
		if holesIn(t, first+uint64(i), kinds); t.Failed() {
			return
		}
	}
	t.Logf("records lost: %v", kinds)
}

func holesIn(t *testing.T, seed uint64, kinds map[record.Type]int) {
	defer func() {
		if t.Failed() {
			t.Logf("run again with -model.seed %d", seed)
		}
	}()
	w := newWorld(t, seed)
	w.some(modelOps)
	clean := w.rng.IntN(2) == 0
	w.stop(clean)
	fs := w.b.fs.(*memfs.FS)
	rng := rand.New(rand.NewPCG(seed, 5))
	if rng.IntN(3) > 0 { // the checkpoint is lost, too: all of the log is read
		for _, name := range must(fs.List("data/checkpoint")) {
			require.NoError(t, fs.Remove("data/checkpoint/"+name))
		}
	}
	records, messages, places, moves := logOf(t, fs)
	open := func(b *bench, how string) {
		t.Helper()
		require.NoError(t, b.open(), "seed %d: %s", seed, how)
		require.NoError(t, b.engine.Define(t.Context(), w.definitions()))
	}
	sound := &bench{t: t, fs: fs.Clone(), clock: w.b.clock, opt: w.b.opt, ready: make(chan brokerapi.Ready, 1024)}
	open(sound, "before the damage")
	expected := sound.readAll(w)
	sound.kill()
	lost := map[record.Pos]bool{}
	for range 1 + rng.IntN(4) {
		at := rng.IntN(len(records))
		for n := 1 + rng.IntN(8); n > 0 && at < len(records); n, at = n-1, at+1 {
			if h := records[at]; h.Type != record.TypePad && !lost[h.Pos] {
				flip(t, fs, h, rng.IntN(1<<20))
				lost[h.Pos] = true
				kinds[h.Type]++
			}
		}
	}
	refusedUntouched(t, fs)
	if *modelSeed != 0 {
		w.b.opt.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
		for _, h := range records {
			for _, p := range places[h.Pos] {
				t.Logf("%d %s lost %v: topic %d queue %d offset %d of %d", h.Pos, h.Type, lost[h.Pos], p.topic, p.queue, p.off, p.ref)
			}
			if len(places[h.Pos]) == 0 {
				t.Logf("%d %s lost %v", h.Pos, h.Type, lost[h.Pos])
			}
		}
	}

	b := &bench{t: t, fs: fs, clock: w.b.clock, opt: w.b.opt, ready: make(chan brokerapi.Ready, 1024), skip: true}
	open(b, "over the damage")
	whole := func(p record.Pos) bool {
		return !lost[p] && !slices.ContainsFunc(moves[p], func(at record.Pos) bool { return lost[at] })
	}
	gone := map[string]bool{}
	for pos, body := range messages {
		if lost[pos] {
			gone[body] = true
		}
	}
	for pos, body := range messages {
		if whole(pos) {
			delete(gone, body) // a dead letter, or a redriven one: the body is there once more
		}
	}
	check := func() {
		t.Helper()
		found := b.readAll(w)
		for pos, list := range places {
			for _, p := range list {
				if d := w.topicByID(p.topic); d == nil || lite.Is(p.queue) || int(p.queue) >= d.Queues {
					continue
				}
				place := placed{topic: p.topic, queue: p.queue, off: p.off}
				got, is := found[place]
				if _, was := expected[place]; was && whole(pos) && whole(p.ref) {
					require.True(t, is, "seed %d: message %q at offset %d of topic %d queue %d is whole and not there", seed, p.body, p.off, p.topic, p.queue)
					require.Equal(t, expected[place], got, "seed %d", seed)
				}
				if is {
					require.False(t, gone[got], "seed %d: message %q is damaged and was returned", seed, got)
				}
			}
		}
	}
	check()
	b.useAll(w, gone)
	b.kill()
	fs.Restart()
	b.skip = false
	open(b, "it was said once")
	check()
	b.useAll(w, gone)
	_, err := b.engine.Close()
	require.NoError(t, err)
	require.NoError(t, b.store.CloseClean(1))
	b.engine = nil
	open(b, "from the checkpoint")
	check()
	b.kill()
	fs.Restart()
	for _, name := range must(fs.List("data/checkpoint")) {
		require.NoError(t, fs.Remove("data/checkpoint/"+name))
	}
	b.skip = true // what lay below the first checkpoint was not met before
	open(b, "from the log alone, over the holes")
	check()
	b.kill()
}

// refusedUntouched: without a word of the operator the start is refused, unless nothing of the damage is read,
// and changes no file of the log.
func refusedUntouched(t *testing.T, fs *memfs.FS) {
	t.Helper()
	before := map[string]string{}
	for _, name := range must(fs.List("data/log")) {
		before[name] = string(must(vfs.ReadFile(fs, "data/log/"+name)))
	}
	copied := fs.Clone()
	st, err := store.Open(storeOptions(copied))
	if err == nil {
		_, err = Open(Options{Store: st, Clock: newClock()})
		_ = st.Close()
	}
	if err == nil {
		return // it lies below the checkpoint
	}
	require.True(t, mqerr.Is(err, mqerr.Corrupt), "%v", err)
	require.ErrorContains(t, err, "data/log/")
	require.ErrorContains(t, err, "perigee debug repair")
	for _, name := range must(copied.List("data/log")) {
		require.True(t, before[name] == string(must(vfs.ReadFile(copied, "data/log/"+name))), "%s was changed", name)
		delete(before, name)
	}
	require.Empty(t, before, "files are gone")
}

// some runs so many operations of the model test.
func (w *world) some(n int) {
	weights := 0
	for _, op := range worldOps {
		weights += op.weight
	}
	for w.step = range n {
		p := w.rng.IntN(weights)
		for _, op := range worldOps {
			if p -= op.weight; p < 0 {
				w.did = append(w.did, op.name)
				op.run(w)
				break
			}
		}
	}
	w.settle()
}

func (w *world) stop(clean bool) {
	if !clean {
		w.b.kill()
		w.b.fs.(*memfs.FS).Restart()
		return
	}
	_, err := w.b.engine.Close()
	w.ok(err)
	w.ok(w.b.store.CloseClean(1))
	w.b.engine = nil
}

func (w *world) topicByID(id record.TopicID) *topic.Definition {
	for _, d := range w.topics {
		if d.ID == id {
			return d
		}
	}
	return nil
}

// definitions is what the controller tells a broker that starts.
func (w *world) definitions() *Definitions {
	defs := &Definitions{Full: true, Version: w.version}
	for _, name := range slices.Sorted(maps.Keys(w.topics)) {
		defs.Topics = append(defs.Topics, *w.topics[name])
	}
	for _, name := range slices.Sorted(maps.Keys(w.groups)) {
		defs.Groups = append(defs.Groups, *w.groups[name])
	}
	return defs
}

// readAll pulls every queue from its first message to its end.
func (b *bench) readAll(w *world) map[placed]string {
	b.t.Helper()
	found := map[placed]string{}
	for _, d := range w.topics {
		for q := range d.Queues {
			for at := int64(0); ; { // what retention deleted is not there
				r, err := wait(b.t, func(done func(*brokerapi.PullReply, error)) {
					b.proxy.Pull(&brokerapi.PullRequest{Topic: brokerapi.TopicID(d.ID), Queue: brokerapi.QueueID(q), Offset: brokerapi.QueueOffset(at), Max: 32}, done)
				})
				require.NoError(b.t, err, "%s queue %d from %d", d.Name, q, at)
				for _, m := range r.Messages {
					found[placed{topic: d.ID, queue: record.QueueID(q), off: record.QueueOffset(m.Offset)}] = string(m.Body)
				}
				end := int64(r.Next) >= int64(r.Max)
				at = int64(r.Next)
				r.Release()
				if end {
					break
				}
			}
		}
	}
	return found
}

// useAll sends, receives and acks in every topic, and lets time pass.
func (b *bench) useAll(w *world, gone map[string]bool) {
	b.t.Helper()
	for round := range 3 {
		b.clock.advance(4 * time.Hour)
		for _, d := range w.topics {
			if d.Name == "lite" {
				continue
			}
			if round == 0 && (d.Name == "normal" || d.Name == "async") {
				b.mustSend(d.ID, fmt.Sprint("afterwards ", round))
			}
			for _, g := range w.groups {
				b.drainAll(d, g, gone)
			}
		}
		require.NoError(b.t, b.engine.call(context.Background(), func(*writer) {}))
	}
	require.NoError(b.t, b.engine.Failure())
}

func (b *bench) drainAll(d *topic.Definition, g *group.Definition, gone map[string]bool) {
	b.t.Helper()
	for range 20 {
		ms, _, err := b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(d.ID), Group: brokerapi.GroupID(g.ID), Client: "drain"})
		require.NoError(b.t, err)
		if len(ms) == 0 {
			return
		}
		for _, m := range ms {
			require.False(b.t, gone[m.body], "a damaged message was received")
		}
		b.ack(d.ID, g.ID, ms...)
	}
}
