package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/group"
	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/broker/space"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// noMarks are limits without watermarks: the disk gets really full.
func noMarks() space.Limits {
	l := space.Defaults()
	l.Low.Free, l.Producers.Free, l.Grow.Free = 0, 0, 0
	return l
}

// crammed is a broker on a disk of which it may use a few MiB, and then nothing more.
type crammed struct {
	*bench
	mem *memfs.FS
	rng *rand.Rand
}

// cram stores messages until none is taken, has all of them done but for some that stay leased, and takes the rest
// of the disk.
func (c *crammed) cram() (leased int) {
	c.t.Helper()
	for n := 0; ; n++ {
		c.clock.advance(time.Millisecond)
		if n%8 == 0 {
			c.engine.LookAtSpace()
		}
		body := fmt.Sprint(n) // some are small: those stay leased
		if c.rng.IntN(8) > 0 {
			body = strings.Repeat("x", 1000+c.rng.IntN(30_000))
		}
		if _, err := c.send(topicSync, body); err != nil {
			require.True(c.t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
			break
		}
		require.Less(c.t, n, 5000)
	}
	for {
		c.engine.LookAtSpace()
		ms, _, err := c.pop(brokerapi.PopRequest{Topic: brokerapi.TopicID(topicSync), Group: brokerapi.GroupID(groupA), Invisible: 24 * time.Hour})
		if err != nil {
			require.True(c.t, mqerr.Is(err, mqerr.DiskFull), "%v", err)
			break
		}
		if len(ms) == 0 {
			break
		}
		done := slices.DeleteFunc(slices.Clone(ms), func(m got) bool { return len(m.body) < 1000 && m.body != "again" })
		for i, err := range c.ack(topicSync, groupA, done...) {
			require.NoError(c.t, err, i)
		}
		leased += len(ms) - len(done)
	}
	c.mem.SetBudget(c.mem.Used())
	return leased
}

// freed waits until messages are taken again, by what retention does alone.
func (c *crammed) freed() {
	c.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		c.clock.advance(time.Millisecond)
		s := c.engine.LookAtSpace()
		plan, failed := c.engine.Retain(c.t.Context(), retain.Limits{})
		_, err := c.send(topicSync, "again")
		if err == nil && c.engine.LookAtSpace().Seen.Ballast == nil {
			return
		}
		require.True(c.t, err == nil || mqerr.Is(err, mqerr.DiskFull), "%v", err)
		require.NoError(c.t, c.engine.Failure())
		require.True(c.t, time.Now().Before(deadline), "level %v, room %d, stuck: %v, ballast %d: %v, retention: %v (%v), log from %d to %d, limits %+v, costs %d, stats %+v, free %d", s.Level, s.Seen.Room, s.Seen.Stuck,
			c.engine.Ballast(), s.Seen.Ballast, plan, failed, c.engine.log.First(), c.engine.log.Written(), *c.engine.spaces.limits.Load(), c.engine.spaces.costs.state.Load(), c.engine.keeper.stats, s.Seen.Disk.Free)
		time.Sleep(time.Millisecond) // the files of what left the log go beside it
	}
}

// TestFullDiskFreesItself: a disk that is full to the last byte, without any watermark, again and again.
//
//fault:space the disk is full to the last byte, no watermark is set, and old segments are consumed: neither a checkpoint nor a file of the log has space => retention uses the space that is kept for its checkpoint, deletes, and keeps some again; everything is taken again without a restart, also after a kill or a power cut
func TestFullDiskFreesItself(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	for i := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", first+i), func(t *testing.T) {
			c := crammed{newBench(t, Options{CheckpointBytes: 200 << 10, TurnBytes: 64 << 10, Space: noMarks(), Retention: RetentionOptions{Interval: time.Hour}}), memfs.New(), rand.New(rand.NewPCG(first+i, 23))}
			c.fs = c.mem
			c.mustOpen()
			c.define()
			d := &Definitions{Version: 10} // a state of some size, in some runs larger than what is left to retention
			for j := range c.rng.IntN(1500) {
				d.Groups = append(d.Groups, group.Definition{ID: record.GroupID(1000 + j), Name: fmt.Sprintf("g%04d%s", j, strings.Repeat("x", 240)), MaxAttempts: 17, Version: 5})
			}
			require.NoError(t, c.engine.Define(t.Context(), d))
			require.NoError(t, c.engine.checkpointBehind(t.Context(), c.engine.log.Written()))
			c.engine.LookAtSpace()
			require.Positive(t, c.engine.Ballast())
			leased := 0
			for range 3 {
				c.mem.SetBudget(c.mem.Used() + 3<<20 + c.rng.Int64N(3<<20))
				leased += c.cram()
				switch c.rng.IntN(4) {
				case 0:
					c.again()
				case 1:
					full := c.mem.Used()
					c.kill()
					c.mem = c.mem.Crash(c.rng, 0.5)
					c.mem.SetBudget(max(full, c.mem.Used()))
					c.fs = c.mem
					c.mustOpen()
				}
				c.freed()
			}
			c.mem.SetBudget(0)
			c.rebuilt()
			c.drain(topicSync, groupA)
			c.clock.advance(25 * time.Hour)
			require.Len(t, c.drain(topicSync, groupA), leased, "what was leased all the time comes again, and nothing else")
		})
	}
}
