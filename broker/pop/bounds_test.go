package pop

import (
	"fmt"
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// TestAdvanceIsBounded: one call looks at a bounded number of messages, and says that there are more,
// for plain leases, for session leases at their cap, and at the end of a session.
func TestAdvanceIsBounded(t *testing.T) {
	const n = 3*turn + 100
	k := Key{Group: 1, Topic: 1}
	for _, c := range []struct {
		name         string
		session, end bool
	}{{"plain", false, false}, {"cap", true, false}, {"session end", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			tab := New(Options{})
			fill(t, tab, n, 1, 1, c.session)
			now := int64(1_800_000_000_000)
			if c.end {
				tab.Advance(1_700_000_000_000, nil)
				now = 1_700_000_000_001
				if err := tab.ApplySessionEnd(&record.SessionEnd{Client: 1, Until: now}); err != nil {
					t.Fatal(err)
				}
			}
			total := 0
			for calls := 1; total < n; calls++ {
				if at, more := tab.NextDue(); !more || at > now {
					t.Fatalf("%d of %d are due, but nothing is said to be", total, n)
				}
				due := 0
				tab.Advance(now, func(_ Key, n int) { due += n })
				if due > turn || calls > 12 {
					t.Fatalf("call %d: %d due", calls, due)
				}
				if total += due; tab.Stats(k).Ready != int64(total) {
					t.Fatalf("%d ready, %d were told", tab.Stats(k).Ready, total)
				}
				if fault := tab.check(); fault != "" {
					t.Fatal(fault)
				}
			}
			if at, more := tab.NextDue(); more && at <= now {
				t.Errorf("all are due, but more is said to be at %d", at)
			}
		})
	}
}

// TestAttemptsEnd: the attempt number stays at its largest value.
func TestAttemptsEnd(t *testing.T) {
	n := node{}
	n.setUntil(0, 65534)
	if n.nextAttempt() != 65535 {
		t.Errorf("after 65534: %d", n.nextAttempt())
	}
	n.setUntil(0, 65535)
	if n.nextAttempt() != 65535 {
		t.Errorf("after 65535: %d", n.nextAttempt())
	}
}

// TestNodeBounds: lease, deadline and attempt keep all their bits, and flags do not touch them.
func TestNodeBounds(t *testing.T) {
	n := node{}
	lease := posMax &^ (record.Align - 1)
	n.setLease(lease)
	n.setUntil(untilMax, 65535)
	n.set(kept | waits)
	if n.lease() != lease || n.until() != untilMax || n.attempt() != 65535 || !n.is(kept) {
		t.Errorf("lease %d, until %d, attempt %d", n.lease(), n.until(), n.attempt())
	}
}

// TestAgainIsBounded: a client's last leases with an attempt id are remembered, and no others, whatever
// was acked in between.
func TestAgainIsBounded(t *testing.T) {
	tab := New(Options{})
	for i := range 200 {
		ck := record.PopCk{
			Topic: 1, Group: 1, Until: 100, Client: 1, AttemptID: fmt.Appendf(nil, "id%d", i),
			Sections: []record.PopSection{{Items: []record.PopItem{{Offset: record.QueueOffset(i), Attempt: 1, Prev: -1}}}},
		}
		if i == 0 {
			ck.ClientName = []byte("c")
		}
		if err := tab.ApplyLease(record.Pos(i)*8, &ck); err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			if err := tab.ApplyAck(&record.PopAck{Sections: []record.AckSection{{Topic: 1, Group: 1, Offsets: []record.QueueOffset{record.QueueOffset(i)}}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range 200 {
		left := len(tab.Again(0, 1, 1, 1, fmt.Appendf(nil, "id%d", i)))
		want := 0
		if i >= 200-triesMax && i%2 == 0 {
			want = 1
		}
		if left != want {
			t.Errorf("lease %d: %d left, want %d", i, left, want)
		}
	}
	if n := len(tab.clients.byNum[1].tries); n > triesMax {
		t.Errorf("%d leases are remembered", n)
	}
}

// TestClientNumbers: a number in use is never given out, also after all numbers were used once.
func TestClientNumbers(t *testing.T) {
	tab := New(Options{})
	use := func(num record.ClientNum, name string) {
		t.Helper()
		if err := tab.ApplyLease(0, &record.PopCk{Client: num, ClientName: []byte(name)}); err != nil {
			t.Fatal(err)
		}
	}
	use(1, "a")
	use(2, "b")
	if err := tab.ApplySessionEnd(&record.SessionEnd{Client: 1}); err != nil {
		t.Fatal(err)
	}
	if n := tab.NewClientNum(); n != 3 {
		t.Errorf("the next number is %d: 1 is free, but was in use a moment ago", n)
	}
	use(1<<32-1, "last")
	if n := tab.NewClientNum(); n != 1 {
		t.Errorf("after the last number comes %d", n)
	}
	use(1, "c")
	if n := tab.NewClientNum(); n != 3 {
		t.Errorf("2 is in use, the next number is %d", n)
	}
	if err := tab.ApplyLease(0, &record.PopCk{Client: 4, ClientName: []byte("b")}); !mqerr.Is(err, mqerr.Corrupt) {
		t.Errorf("a name got a second number: %v", err)
	}
	again := New(Options{})
	if err := again.Decode(tab.Encode(nil)); err != nil {
		t.Fatal(err)
	}
	if n := again.NewClientNum(); n != 3 {
		t.Errorf("decoded: the next number is %d", n)
	}
}

// TestLeaseBounds: records that say what a node cannot hold are refused.
func TestLeaseBounds(t *testing.T) {
	one := []record.PopSection{{Items: []record.PopItem{{Offset: 0, Attempt: 1, Prev: -1}}}}
	many := []record.PopSection{{Items: make([]record.PopItem, leaseMax+1)}}
	for i := range many[0].Items {
		many[0].Items[i] = record.PopItem{Offset: record.QueueOffset(i), Attempt: 1, Prev: -1}
	}
	for name, c := range map[string]struct {
		pos record.Pos
		ck  record.PopCk
	}{
		"position":           {4, record.PopCk{Sections: one}},
		"far position":       {posMax + 1, record.PopCk{Sections: one}},
		"early deadline":     {8, record.PopCk{Until: -1, Sections: one}},
		"late deadline":      {8, record.PopCk{Until: untilMax + 1, Sections: one}},
		"unknown client":     {8, record.PopCk{Client: 1, Sections: one}},
		"session of nobody":  {8, record.PopCk{Session: true, Sections: one}},
		"name for number 0":  {8, record.PopCk{ClientName: []byte("a"), Sections: one}},
		"queue twice":        {8, record.PopCk{Sections: append(one[:1:1], one[0])}},
		"too many":           {8, record.PopCk{Sections: many}},
		"offset below 0":     {8, record.PopCk{Sections: []record.PopSection{{Items: []record.PopItem{{Offset: -1, Attempt: 1, Prev: -1}}}}}},
		"offsets that fall":  {8, record.PopCk{Sections: []record.PopSection{{Items: []record.PopItem{{Offset: 2, Prev: -1}, {Offset: 1, Prev: -1}}}}}},
		"attempt 2 of a new": {8, record.PopCk{Sections: []record.PopSection{{Items: []record.PopItem{{Offset: 0, Attempt: 2, Prev: -1}}}}}},
	} {
		tab := New(Options{})
		if err := tab.ApplyLease(c.pos, &c.ck); !mqerr.Is(err, mqerr.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if len(tab.Encode(nil)) != len(New(Options{}).Encode(nil)) {
			t.Errorf("%s: the state changed", name)
		}
	}
}

// TestTold: a message of a repeated receive is told of as often as Again has returned it, under that lease only.
func TestTold(t *testing.T) {
	tab, k := New(Options{}), Key{Group: 1, Topic: 1}
	ck := record.PopCk{
		Topic: 1, Group: 1, Until: 100, Client: 1, ClientName: []byte("c"), AttemptID: []byte("id"),
		Sections: []record.PopSection{{Items: []record.PopItem{{Offset: 0, Attempt: 1, Prev: -1}, {Offset: 1, Attempt: 1, Prev: -1}}}},
	}
	if err := tab.ApplyLease(8, &ck); err != nil {
		t.Fatal(err)
	}
	if tab.Told(k, 0, 8) || tab.Untell(k, 0, 8) {
		t.Error("told of before the receive was repeated")
	}
	tab.Again(0, 1, 1, 1, []byte("id"))
	tab.Again(0, 1, 1, 1, []byte("other"))
	tab.Again(100, 1, 1, 1, []byte("id")) // it has ended: nothing is returned
	for _, no := range []struct {
		k     Key
		off   record.QueueOffset
		lease record.Pos
	}{{k, 0, 16}, {k, 2, 8}, {k, -1, 8}, {Key{Group: 1, Topic: 1, Queue: 1}, 0, 8}, {Key{Group: 2, Topic: 1}, 0, 8}} {
		if tab.Told(no.k, no.off, no.lease) || tab.Untell(no.k, no.off, no.lease) {
			t.Errorf("%v was not told of", no)
		}
	}
	for range 2 { // asking changes nothing
		if !tab.Told(k, 0, 8) {
			t.Error("it was told of")
		}
	}
	if !tab.Untell(k, 0, 8) || tab.Untell(k, 0, 8) || tab.Told(k, 0, 8) {
		t.Error("it was told of once")
	}
	if err := tab.ApplyAck(&record.PopAck{Sections: []record.AckSection{{Topic: 1, Group: 1, Offsets: []record.QueueOffset{1}}}}); err != nil {
		t.Fatal(err)
	}
	if tab.Told(k, 1, 8) {
		t.Error("it is done")
	}
}
