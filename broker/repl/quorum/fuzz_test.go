package quorum

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/store/record"
)

// FuzzCore calls a Core with anything, in any order: the invariants hold, C never goes back and never passes what any
// member that counts has acked since it counts.
func FuzzCore(f *testing.F) {
	// Replicas 2 and 3 are proposed, then the log grows, and 2 acks it.
	f.Add([]byte{0, 2, 2, 1, 2, 1, 1, 100, 104, 0, 3, 3, 1, 2, 2, 1, 100, 104, 3, 150, 150, 2, 1, 1, 150, 154, 5, 1, 1, 2, 1, 1, 1, 3, 0, 0})
	f.Add([]byte{0, 2, 2, 1, 2, 100, 2, 1, 150, 3, 200, 3, 1, 9, 4, 6, 3, 5, 1, 2, 6, 30, 7, 1, 1})
	f.Add([]byte{6, 40, 0, 2, 2, 2, 1, 100, 6, 40, 5, 1, 0, 6, 40, 5, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := New(Options{Self: m1, View: view(5, m1), Start: 100, Written: 100, Durable: 100, Times: Times{Rejoin: -1}}, 0)
		require.NoError(t, err)
		next := func() int {
			if len(b) == 0 {
				return 0
			}
			v := int(b[0])
			b = b[1:]
			return v
		}
		anyView := func() View {
			v := View{Epoch: record.Epoch(5 + next()%4), Version: uint64(4 + next()%6), Master: Member{Replica(next() % 3), 11}, MinISR: next() % 4}
			for bits := next(); bits != 0; bits >>= 1 {
				m := Member{Replica(1 + len(v.Replicas)), Incarnation(11 + len(v.Replicas) + next()%3)}
				v.Replicas = append(v.Replicas, m)
				if bits&1 != 0 {
					v.Set = append(v.Set, m)
				}
			}
			return v
		}
		var now time.Duration
		was := c.Confirm()
		for len(b) > 0 {
			switch next() % 9 {
			case 0:
				_, _, _ = c.Open(now, Member{Replica(next() % 6), Incarnation(10 + next()%6)}, next()%4 == 0)
			case 1:
				c.Close(now, Session(next()%8))
			case 2:
				_, _ = c.Acked(now, Session(next()%8), record.Epoch(6+next()%3), record.Pos(next()), record.Pos(next()-4))
			case 3:
				c.OwnEnd(record.Pos(next()), record.Pos(next()))
			case 4:
				c.Controller(now, anyView())
			case 5:
				c.Answered(now, uint64(next()%5), Outcome(next()%4), anyView())
			case 6:
				now += time.Duration(next()-8) * 100 * ms
				c.Tick(now)
			case 7:
				c.Sent(now, Session(next()%8), record.Pos(next()))
			case 8:
				c.Higher(record.Epoch(next() % 9))
			}
			require.NoError(t, c.Check())
			require.GreaterOrEqual(t, c.Confirm(), was)
			if at := c.Confirm(); at > was {
				set, _ := c.Set()
				require.GreaterOrEqual(t, len(set), c.MinISR())
				p, _ := c.Pending()
				for _, m := range append(append([]Member{}, set...), p.Set...) {
					require.GreaterOrEqual(t, c.ackOf(m), at)
				}
				was = at
			}
			c.Waits(nil)
			c.Peers(nil)
		}
	})
}
