package broker

import (
	"context"
	"time"
)

// spacePoll is how often the disk is looked at.
const spacePoll = time.Second

// watchSpace looks at the disk each second, and sooner when the log tells of a file.
func (b *Broker) watchSpace(ctx context.Context) {
	tick := time.NewTicker(spacePoll)
	defer tick.Stop()
	for {
		b.lookAtSpace()
		select {
		case <-tick.C:
		case <-b.look:
		case <-ctx.Done():
			return
		}
	}
}

func (b *Broker) lookAtSpace() {
	b.looking.Lock()
	defer b.looking.Unlock()
	if e := b.now.Load().engine; e != nil {
		e.LookAtSpace()
	}
}

// lookSoon makes the next look come now.
func (b *Broker) lookSoon() {
	select {
	case b.look <- struct{}{}:
	default:
	}
}
