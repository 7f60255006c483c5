package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
)

// promise is what was answered about one message of the sync topic.
type promise struct {
	body   string
	stored *brokerapi.SendResult // answered OK
	maybe  bool                  // sent, outcome unknown
	acked  bool                  // answered OK
	acking bool                  // outcome unknown
	until  int64                 // a lease that was answered ends then at the earliest, ms
	lease  got
}

// chaos drives an engine at random and keeps what it promised.
type chaos struct {
	b     *bench
	rng   *rand.Rand
	all   map[string]*promise
	held  []*promise // leased now, as far as answered
	n     int
	body  int // longest body, bytes
	count map[string]int
}

func (c *chaos) step() {
	switch p := c.rng.IntN(100); {
	case p < 40:
		c.send()
	case p < 65:
		c.receive()
	case p < 85:
		c.ack()
	case p < 92:
		c.change()
	default:
		c.b.clock.advance(time.Duration(c.rng.IntN(20_000)) * time.Millisecond)
	}
}

func (c *chaos) send() {
	var texts []string
	for range 1 + c.rng.IntN(4) {
		c.n++
		texts = append(texts, fmt.Sprintf("m%d-%s", c.n, make([]byte, c.rng.IntN(c.body))))
		c.all[texts[len(texts)-1]] = &promise{body: texts[len(texts)-1], maybe: true}
	}
	r, err := c.b.send(topicSync, texts...)
	if err != nil {
		return
	}
	for i, text := range texts {
		c.all[text].stored, c.all[text].maybe = &r.Results[i], false
	}
	c.count["send"] += len(texts)
}

func (c *chaos) receive() {
	now := c.b.clock.Lease()
	ms, _, err := c.b.pop(brokerapi.PopRequest{
		Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Max: 1 + c.rng.IntN(32), Client: fmt.Sprintf("c%d", c.rng.IntN(3)),
	})
	if err != nil {
		return
	}
	for _, m := range ms {
		c.delivered(m, now)
	}
	c.count["lease"] += len(ms)
}

func (c *chaos) delivered(m got, now int64) {
	t, p := c.b.t, c.all[m.body]
	if p == nil {
		t.Fatalf("a message that was never sent: %q", m.body)
	}
	if p.acked {
		t.Fatalf("%.20q was delivered after its ack was answered", m.body)
	}
	if now < p.until {
		t.Fatalf("%.20q was delivered %d ms before its lease ends", m.body, p.until-now)
	}
	if p.stored != nil && (p.stored.Queue != m.Queue || p.stored.Offset != m.Offset) {
		t.Fatalf("%.20q is not where its send was answered", m.body)
	}
	p.until, p.lease = now+(30*time.Second).Milliseconds(), m
	c.held = append(c.held, p)
}

// take removes a held message at random, nil if there is none.
func (c *chaos) take() *promise {
	if len(c.held) == 0 {
		return nil
	}
	i := c.rng.IntN(len(c.held))
	p := c.held[i]
	c.held[i] = c.held[len(c.held)-1]
	c.held = c.held[:len(c.held)-1]
	return p
}

func (c *chaos) ack() {
	p := c.take()
	if p == nil || p.acked {
		return
	}
	p.acking = true
	r, err := wait(c.b.t, func(done func(*brokerapi.AckReply, error)) {
		c.b.proxy.Ack(&brokerapi.AckRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{p.lease.handle()}}, done)
	})
	if err == nil && r.Errors[0] == nil {
		p.acked = true
		c.count["ack"]++
	}
}

func (c *chaos) change() {
	p := c.take()
	if p == nil || p.acked {
		return
	}
	p.until = 0 // unknown until answered
	d := time.Duration(c.rng.IntN(60)) * time.Second
	now := c.b.clock.Lease()
	r, err := wait(c.b.t, func(done func(*brokerapi.ChangeReply, error)) {
		c.b.proxy.Change(&brokerapi.ChangeRequest{
			Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Handles: []brokerapi.Handle{p.lease.handle()}, Invisible: d,
		}, done)
	})
	if err == nil && r.Errors[0] == nil {
		p.until = now + d.Milliseconds()
		c.held = append(c.held, p)
		c.count["change"]++
	}
}

// verify drains the group after a power cut: all that was promised is there, and nothing else.
func (c *chaos) verify() {
	t := c.b.t
	seen := map[string]bool{}
	for i := range 10 {
		if i == 9 { // what could not be read for once was left alone for a while
			c.b.clock.advance(3 * time.Hour)
		}
		now := c.b.clock.Lease()
		for {
			ms, _, err := c.b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Invisible: 12 * time.Hour})
			require.NoError(t, err)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				c.delivered(m, now)
				seen[m.body] = true
			}
			c.b.ack(topicSync, groupA, ms...)
		}
		c.b.clock.advance(time.Minute)
	}
	for body, p := range c.all {
		if p.stored != nil && !p.acked && !p.acking && !seen[body] {
			t.Errorf("%.20q was answered OK, is not acknowledged, and is gone", body)
		}
	}
	c.audit()
}

// audit reads everything with a fresh group: each stored message once, in its place.
func (c *chaos) audit() {
	t := c.b.t
	times := map[string]int{}
	for {
		ms, _, err := c.b.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupB), Invisible: 12 * time.Hour})
		require.NoError(t, err)
		if len(ms) == 0 {
			break
		}
		for _, m := range ms {
			times[m.body]++
		}
	}
	for body, p := range c.all {
		if n := times[body]; p.stored != nil && n != 1 || n > 1 {
			t.Errorf("%.20q (answered %v) is stored %d times", body, p.stored != nil, n)
		}
	}
}

// TestPowerCut cuts the power at a random operation of the disk, many times, and checks every answer
// that was given before.
//
//fault:power the power goes at any operation of the disk under sends, receives, acks and changes of one topic => every answer holds; each message is stored once, in its place
func TestPowerCut(t *testing.T) {
	rounds := 120 / raceSlows
	if testing.Short() {
		rounds = 25
	}
	first := testseed.First(t)
	total := map[string]int{}
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { powerCut(t, seed, total) })
	}
	t.Logf("answered before the cuts: %v", total)
	for _, kind := range []string{"send", "lease", "ack", "change"} {
		require.Positive(t, total[kind], kind)
	}
}

func powerCut(t *testing.T, seed uint64, total map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	fs := memfs.New()
	b := newBench(t, Options{CheckpointBytes: 64 << 10, CheckpointInterval: time.Minute, TurnBytes: 16 << 10})
	b.fs = fs
	b.mustOpen()
	b.define()
	c := &chaos{b: b, rng: rng, all: map[string]*promise{}, count: total, body: 2000}
	for range 1 + rng.IntN(3) { // some cuts one after the other
		fs.CutPower(1 + rng.IntN(400))
		for range 300 {
			c.step()
			if b.engine.Failure() != nil {
				break
			}
		}
		b.kill()
		fs = fs.Crash(rng, []float64{0, 0.3, 0.9}[rng.IntN(3)])
		c.held = nil
		fs = c.reopen(fs)
		if t.Failed() {
			return
		}
	}
	c.verify()
}

// reopen opens the engine after a power cut, sometimes cutting the power again while it recovers. It
// returns the file system that the engine is on then.
func (c *chaos) reopen(fs *memfs.FS) *memfs.FS {
	c.b.fs = fs
	for range 3 {
		if c.rng.IntN(3) > 0 {
			break
		}
		fs.CutPower(1 + c.rng.IntN(12))
		if err := c.b.open(); err == nil {
			fs.CutPower(0)
			if fs.SyncDir("data") == nil {
				return fs
			} // else the power went when the engine was open already
		}
		if c.b.engine != nil {
			c.b.kill()
		}
		fs = fs.Crash(c.rng, 0.5)
		c.b.fs = fs
	}
	fs.CutPower(0)
	c.b.mustOpen()
	return fs
}

// TestReplayGivesTheSameViews drives the engine at random and compares the views with those that a
// replay of the log, whole or behind a checkpoint, gives: byte for byte.
func TestReplayGivesTheSameViews(t *testing.T) {
	rounds := 24 / raceSlows
	if testing.Short() {
		rounds = 4
	}
	first := testseed.First(t)
	for i := range rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			b := newBench(t, Options{CheckpointBytes: 128 << 10})
			b.mustOpen()
			b.define()
			c := &chaos{b: b, rng: rand.New(rand.NewPCG(seed, 3)), all: map[string]*promise{}, count: map[string]int{}, body: 2000}
			for round := range 3 {
				for range 300 {
					c.step()
				}
				live := b.views()
				b.kill()
				b.fs.(*memfs.FS).Restart()
				if round == 1 { // no checkpoint: everything from the log
					for _, name := range must(b.fs.List("data/checkpoint")) {
						require.NoError(t, b.fs.Remove("data/checkpoint/"+name))
					}
				}
				require.Equal(t, live, b.replayed())
				b.mustOpen()
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// views is the bytes of the views that are a function of the log alone.
func (b *bench) views() map[string]string {
	s := b.state()
	delete(s, sectionQueues) // names extents, which a rebuild may place elsewhere
	return s
}

// replayed recovers the views without beginning an epoch.
func (b *bench) replayed() map[string]string {
	b.t.Helper()
	st := b.openStore()
	defer st.Close()
	o := b.opt
	o.Store, o.Clock = st, b.clock
	e, err := Open(o)
	require.NoError(b.t, err)
	out := map[string]string{}
	for _, s := range must(e.writer.views.encode()) {
		out[s.Name] = string(s.Bytes())
	}
	delete(out, sectionQueues)
	return out
}
