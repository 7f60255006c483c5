package longpoll

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

func (b *fakeBroker) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

var errAway = mqerr.New(mqerr.Unavailable, "away")

// TestReceiveWaitsForAMaster: a receive that finds no broker waits for one, and is told after a while that there is none.
func TestReceiveWaitsForAMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake(Options{Patience: 10 * time.Second})
		b.fail(errAway)
		_, got := b.receive(30 * time.Second)
		r := <-got
		require.ErrorIs(t, r.err, errAway)
		require.Equal(t, 10*time.Second, r.after)

		_, got = b.receive(4 * time.Second)
		require.Equal(t, received{after: 4 * time.Second}, <-got, "its own time comes first")

		_, got = b.receive(30 * time.Second)
		time.Sleep(5500 * time.Millisecond) // no try is due
		b.fail(nil)
		b.ready = 1
		b.polls.Up(b.shard)
		require.Equal(t, received{messages: 1, after: 5500 * time.Millisecond}, <-got)

		b.fail(errAway)
		_, got = b.receive(30 * time.Second)
		time.Sleep(5500 * time.Millisecond)
		b.fail(nil)
		b.polls.Up(b.shard)
		require.Equal(t, received{after: 30 * time.Second}, <-got, "it waits for messages as long as it may")
	})
}

// TestLostAnswerIsAskedForAgain: the receives whose answers were lost with a broker ask the next one, each with its own
// attempt.
func TestLostAnswerIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFake(Options{Patience: 10 * time.Second})
		lost := mqerr.New(mqerr.UnknownOutcome, "lost")
		b.hold = func(answer func()) {
			time.AfterFunc(time.Second, func() { b.fail(lost); answer() })
		}
		var all []<-chan received
		for range 3 {
			_, got := b.receive(30 * time.Second)
			all = append(all, got)
		}
		synctest.Wait()
		b.polls.Down(b.shard)
		time.Sleep(1500 * time.Millisecond)
		b.mu.Lock()
		b.hold, b.requests = nil, nil
		b.mu.Unlock()
		b.fail(nil)
		b.polls.Up(b.shard)
		require.GreaterOrEqual(t, len(b.requests), 3)
		for _, got := range all {
			require.Equal(t, received{after: 30 * time.Second}, <-got)
		}
	})
}
