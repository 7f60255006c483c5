package commitlog_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

var seedFlag = flag.Uint64("seed", 0, "run TestCrash with this seed only")

// crasher runs a log through power cuts and kills, and knows what must be left.
type crasher struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	fs      *memfs.FS
	epoch   record.Epoch
	written []entry    // everything whose Write began
	durable record.Pos // below was promised: a Sync or a Recover said so
	first   record.Pos // below was deleted: a DropBefore or a Recover said so
	asked   record.Pos // the highest position of a DropBefore
}

// TestCrash is the promise of the log: every record below Durable is found, nothing damaged is returned,
// a batch is whole or absent, whatever is lost in a power cut at any operation; what a recovery has
// shown stays; and what was deleted stays away.
//
//fault:power the power goes, or the process is killed, at any operation of the log, again and again => every record below the durable end is found, nothing damaged is returned, a batch is whole or absent, and what a recovery has shown stays
func TestCrash(t *testing.T) {
	seeds := 150
	if testing.Short() {
		seeds = 50
	}
	first := testseed.First(t)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	t.Logf("seeds %d to %d", first, first+uint64(seeds)-1)
	for i := range seeds {
		seed := first + uint64(i)
		c := &crasher{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), fs: memfs.New()}
		for range 8 {
			c.round()
		}
	}
}

// round recovers, works for a while, and crashes.
func (c *crasher) round() {
	if c.rng.IntN(3) > 0 {
		c.fs.CutPower(1 + c.rng.IntN(60))
	}
	l := c.recover()
	if l != nil {
		c.work(l)
		l.Kill()
	}
	c.fs.CutPower(0)
	if c.rng.IntN(3) == 0 {
		c.fs.Restart() // only the process died; what it did not sync is at risk still
		return
	}
	c.fs = c.fs.Crash(c.rng, []float64{0, 0.5, 0.9, 1}[c.rng.IntN(4)])
}

// recover starts the log and compares. It returns nil if the power went off meanwhile.
func (c *crasher) recover() *commitlog.Log {
	l, found, err := start(options(c.fs))
	if errors.Is(err, memfs.ErrPowerLoss) {
		return nil
	}
	if err != nil {
		c.fatal("recovery refused: %v", err)
	}
	if l.First() < c.first || l.First() > c.asked {
		c.fatal("the log begins at %d, it was deleted up to %d, and that up to %d was asked for", l.First(), c.first, c.asked)
	}
	c.first = l.First()
	c.written = from(c.written, c.first)
	if len(found) > len(c.written) {
		c.fatal("%d records found, %d were written", len(found), len(c.written))
	}
	requireSame(c.t, c.written[:len(found)], found, fmt.Sprintf("seed %d", c.seed))
	end := l.First()
	if len(found) > 0 {
		last := found[len(found)-1]
		if last.more {
			c.fatal("the batch of %d is incomplete", last.pos)
		}
		end = last.end()
	}
	if len(found) < len(c.written) && c.written[len(found)].pos < c.durable {
		c.fatal("the record at %d is lost, the log was durable up to %d", c.written[len(found)].pos, c.durable)
	}
	if l.Written() < end || l.Durable() != l.Written() {
		c.fatal("recovered to %d, written %d, durable %d", end, l.Written(), l.Durable())
	}
	c.written = c.written[:len(found)]
	c.durable = l.Durable()
	return l
}

// work appends and syncs at random until the power goes off or it is time.
func (c *crasher) work(l *commitlog.Log) {
	c.epoch++
	for range c.rng.IntN(25) {
		var bodies [][]byte
		for range 1 + c.rng.IntN(4) {
			n := c.rng.IntN(200)
			if c.rng.IntN(6) == 0 {
				n = c.rng.IntN(l.MaxBody())
			}
			bodies = append(bodies, body(c.rng.IntN(1000), n))
		}
		entries, err := appendTo(l, c.epoch, c.rng.IntN(2) == 0, bodies...)
		c.written = append(c.written, entries...) // a write that failed may be found
		if err != nil {
			return
		}
		if c.rng.IntN(3) > 0 {
			continue
		}
		if l.Sync() != nil {
			return
		}
		c.durable = l.Durable()
		if c.rng.IntN(6) == 0 {
			pos := l.First() + record.Pos(c.rng.Int64N(int64(c.durable-l.First())+1))
			c.asked = max(c.asked, pos)
			if _, err := l.DropBefore(pos); err != nil {
				return
			}
			c.first = l.First()
		}
	}
}

func (c *crasher) fatal(format string, args ...any) {
	c.t.Helper()
	c.t.Fatalf("seed %d: %s", c.seed, fmt.Sprintf(format, args...))
}

// TestFaults fails every single operation of a run, one after the other. The run ends with an error or
// does not notice (a preparation that is tried again); what it promised is there afterwards, also after
// a power cut.
//
//fault:storage each operation of the log's files fails once, with a power cut behind it => what was promised is there; after a failed sync nothing is appended
func TestFaults(t *testing.T) {
	for op := faultfs.OpCreate; op <= faultfs.OpMap; op++ {
		for nth := 1; ; nth++ {
			mem := memfs.New()
			fs := faultfs.Wrap(mem)
			fs.Set(faultfs.Fault{Op: op, Nth: nth, Short: nth%2 == 0})
			written, durable, err := faultyRun(t, fs)
			if !fs.Hit() {
				require.NoError(t, err)
				break
			}
			if err != nil {
				require.ErrorIs(t, err, faultfs.ErrInjected, "%v %d", op, nth)
			}
			rng := rand.New(rand.NewPCG(uint64(op), uint64(nth)))
			for _, keep := range []float64{0, 0.5, 1} {
				l, found, err := start(options(mem.Crash(rng, keep)))
				require.NoError(t, err, "%v %d", op, nth)
				l.Kill()
				requireSame(t, written[:len(found)], found, fmt.Sprintf("%v %d", op, nth))
				if len(found) < len(written) {
					require.GreaterOrEqual(t, written[len(found)].pos, durable, "%v %d keep %v: lost", op, nth, keep)
				}
			}
		}
	}
}

// faultyRun starts a log twice and appends to it over several segments.
func faultyRun(t *testing.T, fs *faultfs.FS) (written []entry, durable record.Pos, err error) {
	for epoch := range record.Epoch(2) {
		l, _, err := start(options(fs))
		if err != nil {
			return written, durable, err
		}
		defer l.Kill()
		durable = max(durable, l.Durable())
		for i := range 6 {
			entries, err := appendTo(l, epoch, i%2 == 0, body(i, 100), body(i, 5000))
			written = append(written, entries...)
			if err != nil {
				return written, durable, err
			}
			if err := l.Sync(); err != nil {
				if _, again := appendTo(l, epoch, false, body(0, 1)); again == nil || l.Durable() != durable {
					t.Errorf("after a failed sync: append %v, durable %d", again, l.Durable())
				}
				return written, durable, err
			}
			durable = l.Durable()
		}
		if err := l.Close(); err != nil {
			return written, durable, err
		}
	}
	return written, durable, nil
}
