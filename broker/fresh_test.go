package broker_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker"
	"github.com/perigee-mq/perigee/internal/boottime"
	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// TestSureOfTheLead: a master that no controller confirms goes on with messages, and tells nothing that only a master
// knows: another one may lead by now.
func TestSureOfTheLead(t *testing.T) {
	m := newTeam(t, 2, 2)
	var later atomic.Int64 // how far the boot-time clocks are ahead
	m.change = func(o *broker.Options) {
		o.Boot = func() time.Duration { return boottime.Now() + time.Duration(later.Load()) }
	}
	m.begin(0)
	m.begin(1)
	m.inSync(2)
	m.topic, m.group = m.k.define()
	m.put("before", 3)
	at := m.master()
	b, err := m.running[at].Attach("test", brokerapi.Events{})
	require.NoError(t, err)
	tell := map[string]func() error{
		"topic": func() error { _, err := b.DescribeTopic(t.Context(), m.topic); return err },
		"group": func() error { _, err := b.DescribeGroup(t.Context(), m.topic, m.group); return err },
		"offset": func() error {
			_, err := b.Offset(t.Context(), &brokerapi.OffsetRequest{Topic: m.topic, Group: m.group, Queue: 0, Of: brokerapi.OffsetEnd})
			return err
		},
	}
	for what, f := range tell {
		m.until(what, func() bool { return f() == nil }) // the first heartbeat of the epoch was answered
	}

	require.NoError(t, m.k.conn.Close())
	m.until("no lease is given any more", func() bool {
		later.Add(int64(3 * time.Second))
		return tell["topic"]() != nil
	})
	for what, f := range tell {
		require.True(t, mqerr.Is(f(), mqerr.NotLeader), "%s: %v", what, f())
	}
	require.NoError(t, (&user{t, b, m.topic, m.group}).send("after"))
	require.Equal(t, at, m.master())
}
