package follower

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/repl/quorum"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// FuzzCore calls a Core with anything, in any order: the invariants hold, C never goes back, nothing below it is cut,
// and what is acked is of the promised epoch.
func FuzzCore(f *testing.F) {
	f.Add([]byte{0, 7, 1, 1, 7, 2, 3, 4, 7, 0, 1, 100, 90, 150, 5, 4, 7, 100, 120, 7, 90, 6, 7, 120, 8, 4, 7, 150, 140})
	f.Add([]byte{0, 7, 1, 1, 7, 2, 3, 4, 7, 0, 2, 80, 90, 150, 9, 80, 6, 100})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := start(t)
		next := func() int {
			if len(b) == 0 {
				return 0
			}
			v := int(b[0])
			b = b[1:]
			return v
		}
		pos := func() record.Pos { return record.Pos(next() - 4) }
		epoch := func() record.Epoch { return record.Epoch(4 + next()%6) }
		confirm, promised := c.Confirm(), c.Promised()
		for len(b) > 0 {
			switch next() % 11 {
			case 0:
				_, _ = c.Follow(epoch(), quorum.Member{Replica: quorum.Replica(next() % 3), Inc: 11})
			case 1:
				c.PromiseKept(epoch())
			case 2:
				_, _ = c.Hello()
			case 3:
				_, _ = c.Welcome(Welcome{
					Session: quorum.Session(next() % 4), Epoch: epoch(), Master: quorum.Member{Replica: quorum.Replica(next() % 3), Inc: 11},
					Answer: replica.Answer{Verdict: replica.Verdict(next() % 7), At: pos()}, Confirm: pos(), LogMin: pos(), LogEnd: pos(),
				})
			case 4, 5:
				batch := Batch{Session: quorum.Session(next() % 4), Epoch: epoch(), Start: c.End(), End: c.End() + pos(), RecordEpoch: epoch(), Confirm: pos()}
				if todo, err := c.Batch(batch); err == nil && todo.Append && next()%4 > 0 {
					_, err = c.Appended(batch)
					require.NoError(t, err)
				}
			case 6:
				c.Flushed(pos())
			case 7:
				_, _ = c.Beat(Beat{Session: quorum.Session(next() % 4), Epoch: epoch(), LogEnd: pos(), Confirm: pos()})
			case 8:
				c.Lost()
			case 9:
				_, _ = c.CutDone(pos())
			case 10:
				c.Seen(epoch())
			}
			require.NoError(t, c.Check())
			require.GreaterOrEqual(t, c.Confirm(), confirm)
			require.GreaterOrEqual(t, c.Promised(), promised)
			require.GreaterOrEqual(t, c.End(), c.Confirm())
			confirm, promised = c.Confirm(), c.Promised()
			if a, ok := c.Ack(); ok {
				require.Equal(t, Ack{Session: a.Session, Epoch: promised, Written: c.End(), Durable: c.Durable()}, a)
				require.NotZero(t, a.Session)
			}
		}
	})
}
