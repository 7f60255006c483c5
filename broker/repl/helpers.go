package repl

import (
	"context"
	"fmt"
	"time"
)

// sync makes durable what is written: all batches that wait share one fdatasync.
func (f *Follower) sync(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.syncNow:
		}
		if f.o.FlushInterval > 0 {
			timer := time.NewTimer(f.o.FlushInterval)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		}
		select {
		case <-ctx.Done():
			return
		case f.syncing <- struct{}{}:
		}
		err := f.o.CommitLog.Sync()
		<-f.syncing
		if err != nil {
			f.die(err)
			return
		}
		ring(f.flushed)
	}
}

// apply lets the views come after the confirm offset.
func (f *Follower) apply(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.applyNow:
		}
		select {
		case <-ctx.Done():
			return
		case f.applying <- struct{}{}:
		}
		err := f.o.Views.Apply(f.Confirmed())
		<-f.applying
		if err != nil {
			f.die(fmt.Errorf("views of a follower: %w", err))
			return
		}
	}
}
