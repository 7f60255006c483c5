package engine

import (
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/topic"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Topics and groups of the test, beside those of definitions.
const (
	topicFIFO  record.TopicID = 21
	topicDelay record.TopicID = 22
	topicTxn   record.TopicID = 23
	topicGiven record.TopicID = 24 // transactions of topicTxn that nobody has ended
	groupReset record.GroupID = 21
	groupPull  record.GroupID = 22
)

// TestPowerCutModel cuts the power while calls of every kind are under way, at a random operation of the
// disk or right behind the answer of one kind, also while it recovers, and checks that all that was answered
// before holds afterwards. What had no answer has happened wholly or not at all, and once.
//
//fault:power the power goes at any write or sync of the disk, or right behind an answer, also during recovery and several times, under calls of every kind => every answer holds (send, lease, ack, change, forward, redrive, recall, commit, rollback, check, offsets, reset, topic change); what had no answer has happened wholly or not at all, and once
func TestPowerCutModel(t *testing.T) {
	rounds := 140 / raceSlows
	if testing.Short() {
		rounds = 24
	}
	first := testseed.First(t)
	total := map[string]int{}
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { powerModel(t, seed, total, false) })
	}
	t.Logf("answered before the cuts: %v", total)
	if rounds < 100 {
		return
	}
	for _, o := range powerOps {
		require.Positive(t, total[o.name], o.name)
	}
}

// TestPowerCutAsyncModel does the same where every topic is flushed later. What was answered before the last
// flush holds; what was answered after it has happened wholly or not at all.
//
//fault:power the power goes under calls of every kind where all topics are asynchronous => every answer from before the last flush holds; each later call has happened wholly or not at all
func TestPowerCutAsyncModel(t *testing.T) {
	rounds := 30 / raceSlows
	if testing.Short() {
		rounds = 10
	}
	first := testseed.First(t)
	total := map[string]int{}
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { powerModel(t, seed, total, true) })
	}
	t.Logf("answered before the last flush: %v", total)
	require.Positive(t, total["(unknown)"])
}

// fate says whether something was done.
type fate uint8

const (
	untried fate = iota
	maybe        // asked for, no answer
	surely       // answered OK
)

// note is what is known of one message that was sent.
type note struct {
	id, body string
	topic    record.TopicID
	with     []*note // of the same request, itself included
	message  brokerapi.Message
	seq      int   // among all sends
	at       int64 // when it was sent last

	stored *brokerapi.SendResult // as answered
	place  *spot                 // where it was first, if that is known
	lost   bool                  // was sent without an answer that holds
	firm   bool                  // must be there
	gone   bool                  // is not there and can never be
	recall fate
	commit fate
	roll   fate
}

// spot is a place in a queue.
type spot struct {
	topic record.TopicID
	queue brokerapi.QueueID
	off   brokerapi.QueueOffset
}

// taken is what a group has done with the message of one spot.
type taken struct {
	note  *note
	spot  spot
	lease got
	until int64 // the lease ends then at the earliest
	acked fate
	dead  fate // forwarded
}

// power drives an engine at random and keeps what it promised.
type power struct {
	t     *testing.T
	b     *bench
	fs    *memfs.FS
	rng   *rand.Rand
	count map[string]int
	n     int
	times int // restarts

	notes map[string]*note
	order []*note // as sent
	subs  map[record.GroupID]map[spot]*taken
	held  map[record.GroupID][]*taken
	seen  map[spot]string // ids of messages that a client may have seen, and that were there after a restart

	redriven, redrivenMaybe int
	bursting                bool
	moves                   moves
	position                map[brokerapi.QueueID]brokerapi.QueueOffset // of the group that stores its positions
	setting                 []brokerapi.SetOffset                       // in flight
	starts                  map[string]int                              // per lite topic: messages up to this one are not for the second group
	defined                 map[record.TopicID]fate                     // of topics made meanwhile
	deleted                 map[record.TopicID]fate
	version                 uint64

	cutAfter string // cut the power behind the answer of this kind
	cutIn    int    // the how manieth
	cut      bool

	async bool // all topics are flushed later
	loose bool // nothing was flushed since: no answer is a promise, so each counts as unknown
}

func powerModel(t *testing.T, seed uint64, total map[string]int, async bool) {
	o := Options{CheckpointBytes: 48 << 10, CheckpointInterval: time.Minute, TurnBytes: 16 << 10, Txn: TxnOptions{CheckLimit: 2}}
	p := &power{
		t: t, b: newBench(t, o), fs: memfs.New(), rng: rand.New(rand.NewPCG(seed, 17)), count: total, version: 50,
		notes: map[string]*note{}, subs: map[record.GroupID]map[spot]*taken{}, held: map[record.GroupID][]*taken{}, seen: map[spot]string{},
		position: map[brokerapi.QueueID]brokerapi.QueueOffset{}, starts: map[string]int{},
		defined: map[record.TopicID]fate{}, deleted: map[record.TopicID]fate{}, moves: newMoves(),
	}
	if async {
		p.async, p.b.opt.Async, p.b.opt.FlushInterval, p.b.opt.FlushBytes = true, true, time.Hour, 24<<10
	}
	for _, s := range powerSubs {
		if p.subs[s.group] == nil {
			p.subs[s.group] = map[spot]*taken{}
		}
	}
	p.b.fs = p.fs
	p.b.mustOpen()
	p.define()
	require.NoError(t, p.attend())
	for range 1 + p.rng.IntN(3) {
		p.live()
		p.crash()
		if t.Failed() {
			return
		}
	}
	p.drain()
	p.b.again()
	require.NoError(t, p.attend())
	p.audit()
	for _, s := range powerSubs {
		for _, m := range p.receive(s.group, s.topic) {
			t.Errorf("%.20q of topic %d came to group %d after the last restart, all was acknowledged", m.body, s.topic, s.group)
		}
	}
}

func (p *power) define() {
	d := definitions()
	add := func(id record.TopicID, name string, kind topic.Type, queues int) {
		d.Topics = append(d.Topics, topic.Definition{ID: id, Name: name, Type: kind, Queues: queues, Flush: topic.FlushSync, Version: 30})
	}
	add(topicFIFO, "fifo", 2, 2)
	add(topicDelay, "delay", 3, 2)
	add(topicTxn, "txn", 4, 2)
	add(topicGiven, txnPrefix+"txn", 1, 1)
	add(topicDead, deadPrefix+"b", 1, 1)
	add(topicLite, "parent", 5, 1)
	d.Groups = append(d.Groups,
		group.Definition{ID: groupOrdered, Name: "ordered", Ordered: true, MaxAttempts: 1000, Version: 31},
		group.Definition{ID: groupLite, Name: "lite", MaxAttempts: 1000, LiteTopic: "parent", Version: 32},
		group.Definition{ID: groupLite2, Name: "lite2", MaxAttempts: 1000, LiteTopic: "parent", Version: 33},
		group.Definition{ID: groupReset, Name: "reset", MaxAttempts: 1000, Version: 34},
		group.Definition{ID: groupPull, Name: "pull", MaxAttempts: 1000, Version: 35})
	d.Version = 50
	for i := range d.Topics {
		if p.async {
			d.Topics[i].Flush = topic.FlushDefault
		}
	}
	require.NoError(p.t, p.b.engine.Define(p.t.Context(), d))
}

// attend says again what is soft state: subscriptions to lite topics, producers. It fails if the power went.
func (p *power) attend() error {
	if err := p.b.trySync(groupLite, "client", brokerapi.SyncLiteRequest{Action: brokerapi.LiteCompleteAdd, Names: powerLites}); err != nil {
		return err
	}
	for name := range p.starts {
		if err := p.b.trySync(groupLite2, "client", brokerapi.SyncLiteRequest{Action: brokerapi.LitePartialAdd, Names: []string{name}}); err != nil {
			return err
		}
	}
	_, err := p.b.proxy.Producers(p.t.Context(), &brokerapi.ProducersRequest{Topics: []brokerapi.TopicID{brokerapi.TopicID(topicTxn)}})
	return err
}

// live makes calls until the power goes. Where it goes behind an answer, calls come one by one, so that
// none makes another's records durable; else there are several in one turn of the writer.
func (p *power) live() {
	p.cut, p.cutAfter = false, ""
	steps := 250
	if p.async {
		p.steps(p.rng.IntN(80))
		require.NoError(p.t, p.b.engine.log.Sync())
		p.loose = true
		defer func() { p.loose = false }()
		p.fs.CutPower(1 + p.rng.IntN(80))
		p.steps(120)
		return
	}
	if p.rng.IntN(5) < 3 {
		p.cutAfter, p.cutIn = powerOps[p.rng.IntN(len(powerOps))].name, 1+p.rng.IntN(3)
	} else {
		p.fs.CutPower(1 + p.rng.IntN(400))
		steps = 120
	}
	p.steps(steps)
}

// steps makes calls, some of them at once where it does not matter behind which the power goes.
func (p *power) steps(n int) {
	for range n {
		if p.cut || p.t.Failed() || p.b.engine.Failure() != nil {
			return
		}
		p.moves.flying, p.moves.popping = false, 0
		switch {
		case p.rng.IntN(6) == 0:
			p.b.clock.advance(time.Duration(p.rng.IntN(15_000)) * time.Millisecond)
		case p.cutAfter != "":
			if finish := p.draw().start(p); finish != nil {
				finish()
			}
		default:
			p.burst()
		}
	}
}

// draw chooses an operation; the one that is waited for comes more often.
func (p *power) draw() *powerOp {
	sum, often := 0, p.rng.IntN(6) == 0
	for i := range powerOps {
		if often && powerOps[i].name == p.cutAfter {
			return &powerOps[i]
		}
		sum += powerOps[i].weight
	}
	n := p.rng.IntN(sum)
	for i := range powerOps {
		if n -= powerOps[i].weight; n < 0 {
			return &powerOps[i]
		}
	}
	panic("unreachable")
}

// burst makes some calls of different kinds at once: they wait until the writer takes them in one turn.
func (p *power) burst() {
	p.bursting = true
	defer func() { p.bursting = false }()
	gate := make(chan struct{})
	e := p.b.engine
	e.submitOwn(&callOp{do: func(*writer) { <-gate }, done: func(error) {}})
	var finish []func()
	used := map[string]bool{}
	for range 1 + p.rng.IntN(8) {
		o := p.draw()
		if used[o.name] || o.alone {
			continue
		}
		used[o.name] = true
		if f := o.start(p); f != nil {
			finish = append(finish, f)
		}
	}
	for end := time.Now().Add(20 * time.Millisecond); e.inbox.len() < len(finish) && time.Now().Before(end); {
		runtime.Gosched()
	}
	close(gate)
	for _, f := range finish {
		f()
	}
}

// len is how many requests wait.
func (b *inbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ops)
}

// answered counts a call that was answered OK, and cuts the power if it is the one to be cut behind.
func (p *power) answered(kind string) {
	p.count[kind]++
	if kind == p.cutAfter {
		if p.cutIn--; p.cutIn == 0 {
			p.fs.CutPower(1)
			p.cut = true
		}
	}
}

// refused tells that a call had a definite answer which is not OK. Every other error leaves its outcome open.
func refused(err error) bool {
	return mqerr.Is(err, mqerr.NotFound) || mqerr.Is(err, mqerr.Invalid) || mqerr.Is(err, mqerr.HandleInvalid)
}

// crash ends the engine as a power cut does, and opens it on what is left.
func (p *power) crash() {
	p.fs.CutPower(1)
	durable := brokerapi.LogPos(p.b.engine.log.Durable())
	p.b.kill()
	p.forget(durable)
	fs := p.fs.Crash(p.rng, []float64{0, 0, 0.3, 0.9}[p.rng.IntN(4)])
	for {
		p.b.fs = fs
		fs.CutPower(0)
		cut := p.rng.IntN(3) == 0
		if cut {
			fs.CutPower(1 + p.rng.IntN(40))
		}
		err := p.b.open()
		if err == nil {
			err = p.attend()
		}
		if err == nil && !cut {
			break
		}
		if !cut {
			p.t.Fatalf("the engine does not open after a power cut: %v", err)
		}
		if p.b.engine != nil {
			p.b.kill()
		}
		fs = fs.Crash(p.rng, p.rng.Float64())
	}
	p.fs, p.cutAfter = fs, ""
	p.times++
	p.audit()
}

// forget takes back what an asynchronous topic had answered and a power cut may undo.
func (p *power) forget(durable brokerapi.LogPos) {
	for _, n := range p.order {
		if n.topic != topicAsync || n.firm || n.stored == nil {
			continue
		}
		if n.stored.Pos < durable {
			n.firm = true
		} else {
			n.stored, n.place, n.lost = nil, nil, true
		}
	}
	for s, k := range p.subs[groupA] {
		if s.topic == topicAsync {
			k.until, k.acked = 0, min(k.acked, maybe)
		}
	}
	p.held[groupA] = slices.DeleteFunc(p.held[groupA], func(k *taken) bool { return k.spot.topic == topicAsync })
	for _, n := range p.order {
		if n.topic == topicAsync {
			n.recall = min(n.recall, maybe)
		}
	}
}

// message makes a message whose body begins with its id.
func (p *power) message(t record.TopicID, kind brokerapi.MessageType) *note {
	p.n++
	id := fmt.Sprintf("m%d", p.n)
	body := fmt.Sprintf("%s %0*d", id, p.rng.IntN(900), 0)
	return &note{
		id: id, body: body, topic: t, seq: p.n,
		message: brokerapi.Message{Queue: brokerapi.AnyQueue, Type: kind, ID: []byte(id), Body: []byte(body), Digest: md5.Sum([]byte(body))},
	}
}

func (p *power) noteOf(body string) *note {
	id, _, _ := strings.Cut(body, " ")
	n := p.notes[id]
	if n == nil || n.body != body {
		p.t.Fatalf("a message that was never sent: %.40q", body)
	}
	return n
}

// begin makes a call; what it returns waits for the answer.
func begin[R any](p *power, call func(done func(R, error))) func() (R, error) {
	c := make(chan answer[R], 1)
	call(func(r R, err error) { c <- answer[R]{r, err} })
	return func() (R, error) {
		select {
		case a := <-c:
			if p.loose {
				p.count["(unknown)"]++
				if held, ok := any(a.r).(interface{ Release() }); ok && a.err == nil {
					held.Release()
				}
				var none R
				return none, mqerr.New(mqerr.UnknownOutcome, "nothing was flushed since")
			}
			return a.r, a.err
		case <-time.After(20 * time.Second):
			p.t.Fatal("no answer within 20 s")
			panic("unreachable")
		}
	}
}

// blocking is begin for a call that blocks.
func blocking[R any](p *power, call func() (R, error)) func() (R, error) {
	return begin(p, func(done func(R, error)) { go func() { done(call()) }() })
}
