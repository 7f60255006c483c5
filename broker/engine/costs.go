package engine

import (
	"sync/atomic"

	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// costs is what is known of the space that the next step of retention needs: room in the log for its records, and
// space on the disk for the checkpoint without which nothing may be deleted. Both are kept free beforehand, since
// the step is what makes room when there is none.
type costs struct {
	state   atomic.Int64 // bytes of the views as they were encoded last, 0: not known
	grown   atomic.Int64 // what they have grown by since, about
	saved   atomic.Int64 // position of the newest checkpoint
	entries int64        // of the views when they were encoded last; the writer's own
}

// entryBytes is more than what one more lease or message that waits takes in a checkpoint.
const entryBytes = 48

// encoded notes how large the state of the views is.
func (c *costs) encoded(v *views, sections []checkpoint.Section) {
	c.state.Store(sizeOf(sections))
	c.grown.Store(0)
	c.entries = v.grownBy()
}

// turned follows the views at the end of a turn.
func (c *costs) turned(v *views) {
	if n := max(0, v.grownBy()-c.entries) * entryBytes; n != c.grown.Load() {
		c.grown.Store(n)
	}
}

func sizeOf(sections []checkpoint.Section) int64 {
	n := int64(0)
	for i := range sections {
		n += sections[i].Len()
	}
	return n
}

// grownBy is how much there is that a state grows by.
func (v *views) grownBy() int64 {
	return v.pop.Len() + int64(v.timers.Len()+v.txns.Len()+v.carried.Len())
}

// log is the room in the log that a SNAPSHOT needs, whose chunks have a number of bytes: a quarter more than what is
// known, and what records leave unused where a file ends. What a step carries forward comes on top of it: that may be
// much, and to keep room for all of it would refuse consumers, whose work is what lets segments go.
func (c *costs) log(chunk int64) int64 {
	n := c.state.Load() + c.grown.Load()
	return n + n/4 + 2*min(n, chunk)
}

// Of the duplicate window a checkpoint writes what came since the one before: 16 bytes for each message, whose
// record has 8 times that and more.
const (
	freshShare = 8
	freshMax   = 64 << 20
)

// files is the space on the disk that a step needs for a checkpoint, when the log ends at written.
func (c *costs) files(written record.Pos) int64 {
	n := c.state.Load() + c.grown.Load()
	return n + n/4 + min(max(0, int64(written)-c.saved.Load())/freshShare, freshMax)
}
