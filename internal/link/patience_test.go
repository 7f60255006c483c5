package link

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestPatience: a peer is dead after two KeepAlives of silence that this side was awake for, and asked after one.
func TestPatience(t *testing.T) {
	const keepAlive = 4 * time.Second // a look every 2 s
	start := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		at    []float64 // s after the start, of the looks
		heard []bool
		asked []bool
		dead  bool // at the last look
	}{
		"silent":               {[]float64{2, 4, 6, 8}, []bool{false, false, false, false}, []bool{false, true, true, true}, true},
		"nearly silent":        {[]float64{2, 4, 6, 8, 10}, []bool{false, false, false, true, false}, []bool{false, true, true, false, false}, false},
		"a long stop of ours":  {[]float64{2, 4, 6, 60}, []bool{false, false, false, false}, []bool{false, true, true, true}, false},
		"silent after a stop":  {[]float64{2, 4, 6, 60, 62}, make([]bool, 5), []bool{false, true, true, true, true}, true},
		"a stop, then heard":   {[]float64{2, 4, 6, 60, 62, 64}, []bool{false, false, false, false, true, false}, []bool{false, true, true, true, false, false}, false},
		"a look a little late": {[]float64{2, 4, 7.9, 9.9}, make([]bool, 4), []bool{false, true, true, true}, true},
		"stops one after another": {
			[]float64{10, 20, 30, 40, 50, 60, 70, 80},
			make([]bool, 8),
			[]bool{true, true, true, true, true, true, true, true},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPatience(keepAlive, start)
			for i, s := range test.at {
				now := start.Add(time.Duration(s * float64(time.Second)))
				require.False(t, now.Before(p.next), "look %d is too early", i)
				_, ask, dead := p.look(now, test.heard[i])
				require.Equal(t, test.asked[i], ask, "asked at %v s", s)
				require.Equal(t, test.dead && i == len(test.at)-1, dead, "dead at %v s", s)
			}
		})
	}
}

// TestOwnStopIsNoSilence: a process that stood still for longer than its patience finds the signs of life of its
// peer unread. It must read them before it judges.
func TestOwnStopIsNoSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const stop = time.Minute
		near, far := Pipe()
		stopped := &stoppable{Transport: near}
		c := NewClient(stopped, ClientOptions{Options: Options{KeepAlive: 5 * time.Second}})
		t.Cleanup(func() { c.Close(); c.Wait() })
		var stops int
		go func() { // a peer that says no more than it is asked for
			err := far.Send(windows(1 << 20))
			for err == nil {
				packet, failed := far.Recv()
				if err = failed; err != nil || !bytes.Contains(packet, frame(kindPing, 0, 0)) {
					continue
				}
				if stops++; stops == 1 { // the process stands still from here on: its keeper in Fail, its reader in Recv
					stopped.until.Store(time.Now().Add(stop + 4*time.Second).UnixNano())
					c.Start(&Call{Class: Send, Deadline: time.Now().Add(time.Second), To: sleeper(stop)})
				}
				err = far.Send(frame(kindPong, 0, 0))
			}
		}()
		time.Sleep(5 * time.Minute)
		require.NoError(t, c.Err())
		c.Close()
		c.Wait()
		require.Greater(t, stops, 10, "it was asked again and again")
	})
	bubble(t, func(t *testing.T) { // and a peer that died meanwhile is found out
		near, far := Pipe()
		c := NewClient(near, ClientOptions{Options: Options{KeepAlive: 5 * time.Second}})
		go func() {
			for {
				if _, err := far.Recv(); err != nil {
					return
				}
			}
		}()
		c.Start(&Call{Class: Send, Deadline: time.Now().Add(8 * time.Second), To: sleeper(time.Minute)})
		began := time.Now()
		c.Wait()
		require.True(t, mqerr.Is(c.Err(), mqerr.Unavailable), "%v", c.Err())
		require.LessOrEqual(t, time.Since(began), 8*time.Second+time.Minute+10*time.Second)
	})
}

// stoppable is a transport of which nothing is read before a time.
type stoppable struct {
	Transport
	until atomic.Int64 // ns
}

func (s *stoppable) Recv() ([]byte, error) {
	packet, err := s.Transport.Recv()
	time.Sleep(time.Until(time.Unix(0, s.until.Load())))
	return packet, err
}

// sleeper is a receiver that holds up the goroutine that tells it of a deadline.
type sleeper time.Duration

func (s sleeper) Fail(error)               { time.Sleep(time.Duration(s)) }
func (s sleeper) Answer([]byte, bool) bool { return false }
func (s sleeper) Late([]byte, bool)        {}
