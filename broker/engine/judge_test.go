package engine

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// with is a message with one user property.
func with(body, key, value string) brokerapi.Message {
	entry := protowire.AppendBytes([]byte{0x0a}, []byte(key))
	entry = protowire.AppendBytes(append(entry, 0x12), []byte(value))
	m := message(body)
	m.User = protowire.AppendBytes([]byte{0x12}, entry)
	return m
}

// numbered sends messages with the property n from 0 on, in requests of 100.
func (b *bench) numbered(t record.TopicID, n int) {
	b.t.Helper()
	for from := 0; from < n; from += 100 {
		req := &brokerapi.SendRequest{Topic: brokerapi.TopicID(t)}
		for i := from; i < min(from+100, n); i++ {
			req.Messages = append(req.Messages, with(strconv.Itoa(i), "n", strconv.Itoa(i)))
		}
		_, err := wait(b.t, func(done func(*brokerapi.SendReply, error)) { b.proxy.Send(req, done) })
		require.NoError(b.t, err)
	}
}

func sqlPop(sql string, most int) brokerapi.PopRequest {
	return brokerapi.PopRequest{
		Topic: brokerapi.TopicID(topicAsync), Group: brokerapi.GroupID(groupA), Max: most, Filter: brokerapi.Filter{Kind: brokerapi.FilterSQL, SQL: sql},
	}
}

func TestSQLFilter(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			b := newBench(t, Options{})
			b.mustOpen()
			b.define()
			b.numbered(topicAsync, 9000)
			if restart {
				b.again() // nothing is at hand any more
			}
			var found []string
			for {
				ms, more, err := b.pop(sqlPop("n BETWEEN 8000 AND 8999 AND n <> 8500 OR n = '7'", 32))
				require.NoError(t, err)
				if len(ms) == 0 {
					require.False(t, more)
					break
				}
				for _, e := range b.ack(topicAsync, groupA, ms...) {
					require.NoError(t, e)
				}
				found = append(found, bodies(ms)...)
			}
			want := []string{"7"}
			for i := 8000; i < 9000; i++ {
				if i != 8500 {
					want = append(want, strconv.Itoa(i))
				}
			}
			require.ElementsMatch(t, want, found)
			require.EqualValues(t, 9000-len(want), b.engine.Counts().Skipped.Load())
			require.Empty(t, b.mustPop(topicAsync, groupA), "what the filter let pass is done")
			b.sameAfterRestart()
			require.Empty(t, b.mustPop(topicAsync, groupA))
		})
	}
}

// One receive finds the only match behind a long backlog, although it waits for several flights, and
// other requests get their turn meanwhile.
func TestSQLFilterFindsTheOnlyMatch(t *testing.T) {
	b := newBench(t, Options{ScanEntries: 100})
	b.mustOpen()
	b.define()
	b.numbered(topicAsync, 5000)
	b.again()
	ms, _, err := b.pop(sqlPop("n = 4999", 32))
	require.NoError(t, err)
	require.Equal(t, []string{"4999"}, bodies(ms))
	require.Greater(t, b.engine.Counts().Turns.Load(), int64(20))
	require.Len(t, b.mustPop(topicAsync, groupB), 32, "another group has its own view")
}

// Receives with one filter share what was read, and each message goes to one of them.
func TestSQLFilterShared(t *testing.T) {
	b := newBench(t, Options{ScanEntries: 200})
	b.mustOpen()
	b.define()
	b.numbered(topicAsync, 3000)
	b.again()
	var mu sync.Mutex
	var wg sync.WaitGroup
	found := map[string]int{}
	for range 20 {
		wg.Go(func() {
			ms, _, err := b.pop(sqlPop("n >= 2900", 5))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, m := range ms {
				found[m.body]++
			}
		})
	}
	wg.Wait()
	require.Len(t, found, 100)
	for body, n := range found {
		require.Equal(t, 1, n, body)
	}
	var judges int
	require.NoError(t, b.engine.call(t.Context(), func(w *writer) {
		judges = len(w.topics.byID[topicAsync].sub(groupA).judges) + w.judges.flights
	}))
	require.Zero(t, judges, "nothing is left behind")
}

// What came back is judged again, by the filter of who asks now.
func TestSQLFilterOnRedelivery(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.numbered(topicAsync, 10)
	ms, _, err := b.pop(sqlPop("n < 5", 32))
	require.NoError(t, err)
	require.Len(t, ms, 5)
	b.change(topicAsync, groupA, 0, brokerapi.ChangeKeep, ms...)
	ms, _, err = b.pop(sqlPop("n > 3", 32))
	require.NoError(t, err)
	require.Equal(t, []string{"4"}, bodies(ms), "5 to 9 were let pass before")
	require.Empty(t, b.mustPop(topicAsync, groupA))
}

// A receive whose time is over while it looks is answered with nothing, and what it looked at is done. How
// long it may take until it has looked at something is the machine's to say.
func TestSQLFilterDeadline(t *testing.T) {
	for patience := 30 * time.Millisecond; ; patience *= 2 {
		b := newBench(t, Options{ScanEntries: 10})
		b.mustOpen()
		b.define()
		b.numbered(topicAsync, 20_000)
		b.again()
		req := sqlPop("n = -1", 1)
		req.Deadline = time.Now().Add(patience)
		ms, _, err := b.pop(req)
		if err != nil { // it was over before the first turn
			require.True(t, mqerr.Is(err, mqerr.Timeout), "%v", err)
		}
		require.Empty(t, ms)
		if b.engine.Counts().Skipped.Load() > 0 {
			return
		}
		require.Less(t, patience, time.Minute, "it looks at nothing")
	}
}

func TestSQLFilterThatIsNone(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	_, _, err := b.pop(sqlPop("n >", 1))
	require.True(t, mqerr.Is(err, mqerr.Invalid), "%v", err)
	require.ErrorContains(t, err, "column 4")
}

// An engine that ends while messages are judged answers everybody.
func TestSQLFilterEnds(t *testing.T) {
	for _, how := range []string{"close", "kill"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t, Options{ScanEntries: 10})
			b.mustOpen()
			b.define()
			b.numbered(topicAsync, 5000)
			b.again()
			const n = 30
			answers := make(chan error, n)
			for i := range n {
				req := sqlPop(fmt.Sprintf("n = -%d", i%7+1), 1)
				b.proxy.Pop(&req, func(r *brokerapi.PopReply, err error) {
					r.Release()
					answers <- err
				})
			}
			e, st := b.engine, b.store
			if how == "close" {
				b.engine = nil
				_, err := e.Close()
				require.NoError(t, err)
				require.NoError(t, st.Close())
			} else {
				b.kill()
			}
			for range n {
				select {
				case err := <-answers:
					require.True(t, err == nil || mqerr.Is(err, mqerr.Unavailable) || mqerr.Is(err, mqerr.Draining), "%v", err)
				case <-time.After(10 * time.Second):
					t.Fatal("a receive was not answered")
				}
			}
		})
	}
}

func TestPullWithSQL(t *testing.T) {
	b := newBench(t, Options{})
	b.mustOpen()
	b.define()
	b.numbered(topicAsync, 2000)
	b.again()
	var found []string
	for q := range 2 {
		for at := brokerapi.QueueOffset(0); ; {
			r, err := wait(t, func(done func(*brokerapi.PullReply, error)) {
				b.proxy.Pull(&brokerapi.PullRequest{
					Topic: brokerapi.TopicID(topicAsync), Queue: brokerapi.QueueID(q), Offset: at, Max: 32,
					Filter: brokerapi.Filter{Kind: brokerapi.FilterSQL, SQL: "n >= 1950"},
				}, done)
			})
			require.NoError(t, err)
			for _, m := range r.Messages {
				found = append(found, string(m.Body))
			}
			at = r.Next
			r.Release()
			if r.Next >= r.Max {
				break
			}
		}
	}
	require.Len(t, found, 50)
}
