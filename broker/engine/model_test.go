package engine

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/model"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/record"
)

var (
	modelSeeds = flag.Int("model.seeds", modelSeedsDefault, "how many seeds TestModel runs")
	modelSeed  = flag.Uint64("model.seed", 0, "the only seed TestModel runs")
)

// Numbers of seeds and of operations per seed, and how many operations of each kind a run with all seeds
// must have.
const (
	modelSeedsDefault = 1000
	modelOps          = 220
	modelEach         = 1000
)

// TestModel drives an engine at random, with every kind of operation, and compares each answer with
// internal/model. After every restart the views are those before it, byte for byte, whether they come
// from the log alone or from a checkpoint and the rest of the log.
func TestModel(t *testing.T) {
	seeds, first := *modelSeeds/raceSlows, testseed.First(t)
	if *modelSeed != 0 {
		seeds, first = 1, *modelSeed
	} else if testing.Short() {
		seeds = 8
	}
	var mu sync.Mutex
	total := map[string]int{}
	t.Run("seeds", func(t *testing.T) {
		for part := range 2 {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for i := part; i < seeds && !t.Failed(); i += 2 {
					w := newWorld(t, first+uint64(i))
					w.run()
					mu.Lock()
					for kind, n := range w.count {
						total[kind] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	for _, kind := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%-24s %d", kind, total[kind])
	}
	if *modelSeed != 0 || *modelSeeds < modelSeedsDefault || testing.Short() || raceSlows > 1 || t.Failed() {
		return
	}
	for _, op := range worldOps {
		require.GreaterOrEqual(t, total[op.name], modelEach, "operations of the kind %q", op.name)
	}
}

// world is an engine, the model of it, and who uses it.
type world struct {
	t     *testing.T
	b     *bench
	m     *model.Model
	rng   *rand.Rand
	seed  uint64
	step  int
	did   []string // operations so far
	count map[string]int

	topics  map[string]*topic.Definition
	groups  map[string]*group.Definition
	version uint64
	ids     uint32
	n       int // messages sent
	sent    []*brokerapi.SendRequest
	paired  bool // the broker is one of two replicas: it does not start again by itself

	mu     sync.Mutex // guards what the engine's goroutines tell
	wanted []string
}

// Topics of a world by name, and their types as the controller numbers them.
var worldTopics = []struct {
	name   string
	kind   topic.Type
	queues int
	flush  topic.Flush
}{
	{"normal", 1, 3, topic.FlushSync},
	{"async", 1, 2, topic.FlushAsync},
	{"fifo", 2, 2, topic.FlushSync},
	{"delay", 3, 2, topic.FlushSync},
	{"txn", 4, 2, topic.FlushSync},
	{"prio", 6, 3, topic.FlushSync},
	{"lite", 5, 1, topic.FlushSync},
	{txnPrefix + "txn", 1, 1, topic.FlushSync},
}

// worldSubs are the groups, each with the topic that it reads and its filter.
var worldSubs = []struct {
	group, topic string
	ordered      bool
	attempts     int
	tags         []string
}{
	{"g-normal", "normal", false, 17, nil},
	{"g-few", "normal", false, 2, nil},
	{"g-tags", "normal", false, 17, []string{"t0", "t2"}},
	{"g-async", "async", false, 17, nil},
	{"g-fifo", "fifo", true, 3, nil},
	{"g-fifo-tags", "fifo", true, 17, []string{"t1"}},
	{"g-delay", "delay", false, 17, nil},
	{"g-delay-ordered", "delay", true, 17, nil},
	{"g-txn", "txn", false, 17, nil},
	{"g-prio", "prio", false, 17, nil},
	{"g-lite", "lite", true, 17, nil},
}

const modelWindow = 600_000 // of duplicates, ms

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 11)), count: map[string]int{},
		topics: map[string]*topic.Definition{}, groups: map[string]*group.Definition{},
	}
	w.b = &bench{t: t, fs: memfs.New(), clock: newClock()}
	w.b.opt = Options{CheckpointBytes: 64 << 10, Txn: TxnOptions{CheckLimit: 3}}
	w.b.opt.Events.WantTopic = func(name string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wanted = append(w.wanted, name)
	}
	w.m = model.New(w.b.clock.Lease())
	w.m.ChecksMax = 3
	w.open(nil)
	for _, d := range worldTopics {
		w.putTopic(d.name, d.kind, d.queues, d.flush)
	}
	for _, s := range worldSubs {
		w.putGroup(s.group)
	}
	return w
}

func (w *world) run() {
	defer func() {
		if w.t.Failed() {
			w.t.Logf("seed %d failed at operation %d; the last: %v", w.seed, w.step, w.did[max(0, len(w.did)-40):])
		}
		w.b.kill()
	}()
	weights := 0
	for _, op := range worldOps {
		weights += op.weight
	}
	for w.step = range modelOps {
		p := w.rng.IntN(weights)
		for _, op := range worldOps {
			if p -= op.weight; p < 0 {
				w.did = append(w.did, op.name)
				if op.run(w) {
					w.count[op.name]++
				}
				break
			}
		}
		if w.t.Failed() {
			return
		}
	}
	w.restart(w.rng.IntN(4))
	for _, d := range w.topics {
		w.observe(d)
	}
}

// ok stops the test on an error of the model or the engine.
func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("seed %d, operation %d (%s): %v", w.seed, w.step, w.did[max(0, len(w.did)-1):], err)
	}
}

// open recovers the engine; before is what its views must be then, nil for anything.
func (w *world) open(before map[string]string) {
	st, err := store.Open(storeOptions(w.b.fs))
	w.ok(err)
	o := w.b.opt
	o.Store, o.Clock = st, w.b.clock
	e, err := Open(o)
	w.ok(err)
	if before != nil {
		after := worldViews(e)
		for name, data := range before {
			if after[name] != data {
				w.t.Fatalf("seed %d, operation %d: view %q differs after the restart:\nbefore %.600q\nafter  %.600q", w.seed, w.step, name, data, after[name])
			}
		}
	}
	w.b.epoch = max(w.b.epoch, e.views.epoch) + 1
	w.ok(e.Start(Identity{Epoch: w.b.epoch, Incarnation: uint64(w.b.epoch)}))
	w.b.store, w.b.engine = st, e
	w.b.proxy, err = e.Attach("model", brokerapi.Events{})
	w.ok(err)
}

// worldViews is the bytes of all views, the contents of the queues instead of where they are.
func worldViews(e *Engine) map[string]string {
	out := map[string]string{}
	for _, s := range must(e.writer.views.encode()) {
		out[s.Name] = string(bytes.Join(append([][]byte{s.Data}, s.More...), nil))
	}
	queues := ""
	for _, k := range e.writer.views.queues.Keys() {
		lo, hi := e.writer.views.queues.Bounds(k)
		queues += fmt.Sprintf("%v %d..%d:", k, lo, hi)
		for off := lo; off < hi; off++ {
			queues += fmt.Sprintf("%+v", must(e.writer.views.queues.At(k, off)))
		}
	}
	out[sectionQueues] = queues
	return out
}

// restart ends the engine: killed and back from the log alone (0), killed and back from whatever checkpoint
// there is (1), stopped cleanly (2), killed and back from the log without any file of views but that of the
// duplicate window, of which less may be known then (3).
func (w *world) restart(how int) {
	w.settle()
	if w.paired {
		return
	}
	var before map[string]string
	w.ok(w.b.engine.call(context.Background(), func(wr *writer) {
		wr.flushAcks()
		before = worldViews(wr.e)
	}))
	if how == 2 {
		e := w.b.engine
		_, err := e.Close()
		w.ok(err)
		w.ok(w.b.store.Close())
	} else {
		w.b.kill()
		w.b.fs.(*memfs.FS).Restart()
	}
	if how == 0 || how == 3 {
		if w.m.Begins > 0 {
			delete(before, sectionDups)
		}
		for _, name := range must(w.b.fs.List("data/checkpoint")) {
			w.ok(w.b.fs.Remove("data/checkpoint/" + name))
		}
	}
	if how == 3 {
		for _, dir := range []string{"data/queue/", "data/index/"} {
			for _, name := range must(w.b.fs.List(dir)) {
				w.ok(w.b.fs.Remove(dir + name))
			}
		}
	}
	w.open(before)
	stamp := int64(0)
	w.ok(w.b.engine.call(context.Background(), func(wr *writer) { stamp = wr.stamp }))
	w.ok(w.m.Restarted(stamp))
}

// turn lets the writer do what is due, and what it tells to be done.
func (w *world) turn() {
	w.ok(w.b.engine.call(context.Background(), func(*writer) {}))
	w.mu.Lock()
	names := w.wanted
	w.wanted = nil
	w.mu.Unlock()
	for _, name := range names {
		if w.topics[name] == nil {
			w.putTopic(name, 1, 1, topic.FlushSync)
		}
	}
}

// settle waits until everything that must become visible by now is: dead letters first, since time may pass
// until they have a topic.
func (w *world) settle() {
	for len(w.m.Deaths) > 0 {
		w.dead(w.m.Deaths[0].Group)
	}
	for _, name := range slices.Sorted(maps.Keys(w.topics)) {
		w.observe(w.topics[name])
	}
}

// observe reads what became visible in a topic, and waits for what must be.
func (w *world) observe(d *topic.Definition) {
	deadline := time.Now().Add(20 * time.Second)
	for {
		w.turn()
		w.pullAll(d)
		missing := w.m.Missing(brokerapi.TopicID(d.ID))
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("seed %d, operation %d: %s of topic %s should be visible and is not", w.seed, w.step, missing, d.Name)
		}
	}
}

// pullAll reads all queues of a topic behind what was read before.
func (w *world) pullAll(d *topic.Definition) {
	if d.Name == "lite" {
		return
	}
	for q := range d.Queues {
		for {
			seen := w.m.Seen(brokerapi.TopicID(d.ID), brokerapi.QueueID(q))
			r, err := wait(w.t, func(done func(*brokerapi.PullReply, error)) {
				w.b.proxy.Pull(&brokerapi.PullRequest{Topic: brokerapi.TopicID(d.ID), Queue: brokerapi.QueueID(q), Offset: seen, Max: 32}, done)
			})
			w.ok(err)
			for i := range r.Messages {
				w.ok(w.m.Observed(brokerapi.TopicID(d.ID), &r.Messages[i], worldID(r.Messages[i].Body)))
			}
			n := len(r.Messages)
			r.Release()
			if n == 0 {
				break
			}
		}
	}
}

// dead waits until all dead letters of a group are where they belong.
func (w *world) dead(g brokerapi.GroupID) {
	deadline := time.Now().Add(20 * time.Second)
	name := deadPrefix + w.groupName(g)
	for slices.ContainsFunc(w.m.Deaths, func(d model.Death) bool { return d.Group == g }) {
		w.turn()
		if d := w.topics[name]; d != nil {
			w.pullAll(d)
		} else {
			w.b.clock.advance(wantAgain * time.Millisecond) // it is asked for again
			w.m.Step(w.b.clock.Lease(), w.b.clock.Wall())
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("seed %d, operation %d: %d dead letters missing, %s for one", w.seed, w.step, len(w.m.Deaths), w.m.Deaths[0].Of.ID)
		}
	}
}

// worldID is the message id, which every body of a world ends with.
func worldID(body []byte) string {
	var tag, id string
	_, _ = fmt.Sscanf(string(body), "%s %s", &tag, &id)
	return id
}

func (w *world) groupName(id brokerapi.GroupID) string {
	for name, g := range w.groups {
		if g.ID == record.GroupID(id) {
			return name
		}
	}
	return ""
}

// putTopic makes a topic anew, or for the first time.
func (w *world) putTopic(name string, kind topic.Type, queues int, flush topic.Flush) {
	w.ids++
	w.version++
	d := &topic.Definition{ID: record.TopicID(w.ids), Name: name, Type: kind, Queues: queues, Flush: flush, Version: w.version}
	defs := &Definitions{Topics: []topic.Definition{*d}, Version: w.version}
	if old := w.topics[name]; old != nil {
		defs.DeletedTopics = []record.TopicID{old.ID}
		w.m.DropTopic(brokerapi.TopicID(old.ID))
	}
	w.topics[name] = d
	w.ok(w.b.engine.Define(context.Background(), defs))
	w.m.Define(&model.Topic{ID: brokerapi.TopicID(d.ID), Queues: queues, Lite: name == "lite"}, nil)
	if of, is := strings.CutPrefix(name, deadPrefix); is {
		w.m.Group(brokerapi.GroupID(w.groups[of].ID)).Dead = brokerapi.TopicID(d.ID)
	}
}

// putGroup makes a group of worldSubs anew, or for the first time.
func (w *world) putGroup(name string) {
	i := slices.IndexFunc(worldSubs, func(s struct {
		group, topic string
		ordered      bool
		attempts     int
		tags         []string
	},
	) bool {
		return s.group == name
	})
	s := worldSubs[i]
	w.ids++
	w.version++
	d := &group.Definition{ID: record.GroupID(w.ids), Name: name, Ordered: s.ordered, MaxAttempts: s.attempts, Version: w.version}
	if s.topic == "lite" {
		d.LiteTopic = s.topic
	}
	defs := &Definitions{Groups: []group.Definition{*d}, Version: w.version}
	if old := w.groups[name]; old != nil {
		defs.DeletedGroups = []record.GroupID{old.ID}
		w.m.DropGroup(brokerapi.GroupID(old.ID))
	}
	w.groups[name] = d
	w.ok(w.b.engine.Define(context.Background(), defs))
	g := &model.Group{ID: brokerapi.GroupID(d.ID), Ordered: s.ordered, MaxAttempts: s.attempts, Match: func(x *model.Message) bool {
		return s.tags == nil || slices.Contains(s.tags, x.Tag)
	}}
	if dead := w.topics[deadPrefix+name]; dead != nil {
		g.Dead = brokerapi.TopicID(dead.ID)
	}
	w.m.Define(nil, g)
}
