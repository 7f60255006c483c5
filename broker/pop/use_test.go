package pop

import (
	"testing"

	"github.com/perigee-mq/perigee/store/record"
)

// TestUses: leases are counted by group and client until they end, whatever ends them, and who watches hears once.
func TestUses(t *testing.T) {
	tb := New(Options{})
	tb.Advance(1000, nil)
	items := func(from, n int) (out []record.PopItem) {
		for i := range n {
			out = append(out, record.PopItem{Offset: record.QueueOffset(from + i), Attempt: 1, Prev: -1})
		}
		return out
	}
	lease := func(pos record.Pos, client record.ClientNum, name string, session bool, from, n int) {
		t.Helper()
		ck := record.PopCk{Topic: 1, Group: 7, Client: client, ClientName: []byte(name), Session: session, Until: 5000, Sections: []record.PopSection{{Queue: 0, Items: items(from, n)}}}
		if err := tb.ApplyLease(pos, &ck); err != nil {
			t.Fatal(err)
		}
	}
	lease(8, 1, "a", false, 0, 3)
	lease(16, 2, "b", true, 3, 4)
	group, a, b := Holder{Group: 7}, Holder{7, 1}, Holder{7, 2}
	want := func(g, x, y int64) {
		t.Helper()
		if tb.Leased(group) != g || tb.Leased(a) != x || tb.Leased(b) != y {
			t.Fatalf("leased: %d, %d, %d, expected %d, %d, %d", tb.Leased(group), tb.Leased(a), tb.Leased(b), g, x, y)
		}
		if fault := tb.check(); fault != "" {
			t.Fatal(fault)
		}
	}
	freed := func() (out []Holder) {
		tb.Freed(func(h Holder) { out = append(out, h) })
		return out
	}
	want(7, 3, 4)
	tb.Watch(group)
	tb.Watch(b)
	if got := freed(); len(got) != 0 {
		t.Fatalf("freed at once: %v", got)
	}
	if err := tb.ApplyAck(&record.PopAck{Sections: []record.AckSection{{Topic: 1, Group: 7, Queue: 0, Offsets: []record.QueueOffset{0, 3, 4}}}}); err != nil {
		t.Fatal(err)
	}
	want(4, 2, 2)
	if got := freed(); len(got) != 2 {
		t.Fatalf("freed: %v, expected the group and one client, once", got)
	}
	// A renewed lease stays its client's, one that is given back is nobody's.
	change := func(off record.QueueOffset, pos record.Pos, keep bool, until int64) {
		t.Helper()
		if err := tb.ApplyChange(&record.PopChange{Topic: 1, Group: 7, Until: until, Changes: []record.Change{{Queue: 0, Offset: off, Lease: pos, Keep: keep}}}); err != nil {
			t.Fatal(err)
		}
	}
	change(5, 16, false, 9000)
	want(4, 2, 2)
	change(6, 16, true, 9000)
	want(3, 2, 1)
	again := New(Options{})
	if err := again.Decode(tb.Encode(nil)); err != nil {
		t.Fatal(err)
	}
	tb = again
	want(3, 2, 1)
	tb.Advance(6000, nil)
	want(1, 0, 1)
	tb.Advance(9000, nil)
	want(0, 0, 0)
}

// TestDecodesTheVersionBefore: there only session leases named their client, and without a flag.
func TestDecodesTheVersionBefore(t *testing.T) {
	tb := New(Options{})
	ck := record.PopCk{Topic: 1, Group: 7, Client: 1, ClientName: []byte("a"), Session: true, Until: 5000, Sections: []record.PopSection{{Queue: 0, Items: []record.PopItem{{Offset: 0, Attempt: 1, Prev: -1}}}}}
	if err := tb.ApplyLease(8, &ck); err != nil {
		t.Fatal(err)
	}
	now := tb.Encode(nil)
	old := append([]byte{stateUnbound}, now[1:]...)
	flags := len(old) - 4 // count, attempt, flags, client, lease, until: the last two are 1 and 2 bytes
	if old[flags-1] != byte(bound) {
		t.Fatalf("flags are not where they were: %v", old)
	}
	old[flags-1] = 0
	got := New(Options{})
	if err := got.Decode(old); err != nil {
		t.Fatal(err)
	}
	if string(got.Encode(nil)) != string(now) {
		t.Fatal("the session lease is another one now")
	}
}
