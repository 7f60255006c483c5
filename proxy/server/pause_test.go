package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestBoundsAskForAPause: the public code says so, and the pause is in the text and beside the answer.
func TestBoundsAskForAPause(t *testing.T) {
	for kind, pause := range map[mqerr.Kind]time.Duration{
		mqerr.Exhausted: time.Second, mqerr.DiskFull: 5 * time.Second, mqerr.QuotaExceeded: 0, mqerr.Unavailable: 0, mqerr.Invalid: 0,
	} {
		c := newUnary(t, &rmqv2.QueryRouteRequest{})
		r := outcomeOf(RPCQueryRoute, mqerr.New(kind, "no"))
		reject(c, r)
		require.Equal(t, pause, c.pause, "%v", kind)
		require.Equal(t, pause > 0, strings.Contains(r.text, "(retry after "), "%v: %s", kind, r.text)
	}
}

// TestARefusedReceiveTakesItsPause: clients that ask again at once after this code would come too soon.
func TestARefusedReceiveTakesItsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.receives.unsent.Store(s.o.Limits.UnsentBytes + 1)
		from := time.Now()
		require.Equal(t, rmqv2.Code_TOO_MANY_REQUESTS, s.take(t, receiveRequest()).status())
		require.Equal(t, time.Second, time.Since(from))
	})
}

// TestNewWorkIsRefusedWhenMemoryIsShort: sends and pulls at once, receives when many wait already.
func TestNewWorkIsRefusedWhenMemoryIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := 0
		s := newSite(func(o *Options) {
			o.Limits.Pressed, o.Limits.PressedRefused = func() bool { return true }, func() { refused++ }
		})
		c := newUnary(t, &rmqv2.SendMessageRequest{})
		s.SendMessage(c)
		<-c.done
		require.Equal(t, time.Second, c.pause)
		s.brokers[1].store("a")
		require.Equal(t, rmqv2.Code_OK, s.take(t, receiveRequest()).status(), "some receives go on, so that leases end")
		require.Equal(t, 1, refused, "what was refused counts, and not how often memory was looked at")
	})
}
