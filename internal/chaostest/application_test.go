package chaostest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Leases of the simple consumers last appLease. A second delivery is within the lease of the first if it comes before
// appWithin: the lease began before the message arrived.
const (
	appLease  = 10 * time.Second
	appWithin = 8 * time.Second
)

// consumers of a program, by the messages that they are to get.
var consumers = map[string]string{"simple": "n", "push": "n", "fifo": "f"}

// application is what one program saw, put together.
type application struct {
	sent  map[string]bool
	got   map[string]map[string][]time.Time // by consumer and key
	acked map[string]map[string]time.Time
	order []int // first deliveries of the ordered topic
	bad   []string
	lost  int // answers that the client lost by itself
}

func newApplication(events []event) *application {
	a := &application{sent: map[string]bool{}, got: map[string]map[string][]time.Time{}, acked: map[string]map[string]time.Time{}}
	for c := range consumers {
		a.got[c], a.acked[c] = map[string][]time.Time{}, map[string]time.Time{}
	}
	for _, e := range events {
		a.add(e)
	}
	return a
}

func (a *application) wrong(e event, format string, args ...any) {
	a.bad = append(a.bad, e.at.Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (a *application) add(e event) {
	switch e.what {
	case "ready", "produced":
	case "lost":
		a.lost++
	case "sent":
		a.sent[e.words[0]] = true
	case "got":
		a.delivered(e)
	case "acked":
		a.acked[e.words[0]][e.words[1]] = e.at
	default: // an error reached the application
		a.wrong(e, "%s %s", e.what, strings.Join(e.words, " "))
	}
}

// delivered wants no message twice within a lease, none after its ack, and the ordered ones in order.
func (a *application) delivered(e event) {
	who, key := e.words[0], e.words[1]
	before := a.got[who][key]
	a.got[who][key] = append(before, e.at)
	if at, is := a.acked[who][key]; is {
		a.wrong(e, "%s got %s again %v after its ack", who, key, e.at.Sub(at))
	} else if n := len(before); n > 0 && (who == "push" || e.at.Sub(before[n-1]) < appWithin) {
		a.wrong(e, "%s got %s again within its lease, after %v", who, key, e.at.Sub(before[n-1]))
	}
	if who == "fifo" && len(before) == 0 {
		i, err := strconv.Atoi(key[1:])
		if n := len(a.order); err != nil || n > 0 && a.order[n-1] > i {
			a.wrong(e, "%s came after f%d", key, a.order[n-1])
		}
		a.order = append(a.order, i)
	}
}

// missing tells what was sent and has not come to each consumer, or is not acknowledged.
func (a *application) missing() error {
	for who, prefix := range consumers {
		var keys []string
		for key := range a.sent {
			if strings.HasPrefix(key, prefix) && len(a.got[who][key]) == 0 {
				keys = append(keys, key)
			}
			if _, is := a.acked[who][key]; strings.HasPrefix(key, prefix) && who != "push" && !is {
				keys = append(keys, key)
			}
		}
		if len(keys) > 0 {
			return fmt.Errorf("%d of %d messages did not come to %s or were not acknowledged, like %s", len(keys), len(a.sent), who, keys[0])
		}
	}
	return nil
}

// TestApplication shows that each kind of fault is found.
func TestApplication(t *testing.T) {
	read := func(lines ...string) *application {
		var events []event
		for _, l := range lines {
			e, ok := parseEvent(strings.ReplaceAll(l, " ", "\t"))
			require.True(t, ok, l)
			events = append(events, e)
		}
		return newApplication(events)
	}
	good := []string{
		"1 ready", "2 sent n0", "3 sent f0", "4 sent f1", "5 got simple n0 1", "6 acked simple n0", "7 got push n0 1", "8 got fifo f0 1", "9 acked fifo f0", "10 got fifo f1 1", "11 acked fifo f1", "12 produced",
	}
	a := read(good...)
	require.Empty(t, a.bad)
	require.NoError(t, a.missing())
	for name, line := range map[string]string{
		"an error of a send": "20 unsent n1 UNAVAILABLE", "of a receive": "20 unreceived simple broken", "of an ack": "20 unacked simple n0 broken", "of the program": "20 broken x",
		"again after an ack": "20000 got simple n0 2", "to a listener twice": "20000 got push n0 2", "out of order": "20 got fifo f-1 1",
	} {
		require.NotEmpty(t, read(append(good, line)...).bad, name)
	}
	require.NotEmpty(t, read("1 got simple n0 1", "7000 got simple n0 2").bad, "within a lease")
	require.Empty(t, read("1 got simple n0 1", "10001 got simple n0 2").bad, "after its lease")
	for i, line := range good {
		if what := strings.Fields(line)[1]; what == "got" || what == "acked" {
			require.Error(t, read(append(append([]string{}, good[:i]...), good[i+1:]...)...).missing(), line)
		}
	}
}
