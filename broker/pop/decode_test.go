package pop

import (
	"bytes"
	"testing"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// sampleStates are encoded states with something of everything.
func sampleStates(tb testing.TB) [][]byte {
	t := New(Options{})
	states := [][]byte{t.Encode(nil)}
	pos := record.Pos(0)
	apply := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
		states = append(states, t.Encode(nil))
	}
	pop := func(ck record.PopCk, queue record.QueueID, n int) {
		k := Key{Group: 1, Topic: 2, Queue: queue}
		t.Start(k, 0)
		items := t.Plan(k, 1<<40, n, func(record.QueueOffset) Verdict { return Take }, nil)
		ck.Topic, ck.Group, ck.Until = 2, 1, 1_700_000_030_000+int64(pos)
		ck.Sections = []record.PopSection{{Queue: queue, Items: items}}
		pos += 400
		apply(t.ApplyLease(pos, &ck))
	}
	pop(record.PopCk{}, 0, 3)
	pop(record.PopCk{Client: 1, ClientName: []byte("a"), Session: true, AttemptID: []byte("x")}, 0, 100)
	pop(record.PopCk{Client: 2, ClientName: []byte("b"), Session: true, AttemptID: []byte("y")}, 1, 2)
	pop(record.PopCk{Client: 1, AttemptID: []byte("z")}, 1, 70)
	apply(t.ApplyAck(&record.PopAck{Sections: []record.AckSection{{Topic: 2, Group: 1, Offsets: []record.QueueOffset{1, 7, 50}}}}))
	apply(t.ApplyChange(&record.PopChange{Topic: 2, Group: 1, Until: 5, Changes: []record.Change{{Offset: 2, Lease: 400, Keep: true}}}))
	apply(t.ApplySessionEnd(&record.SessionEnd{Client: 2, Until: 77}))
	apply(t.ApplySkip(&record.Skip{Topic: 2, Group: 1, Queue: 1, From: 72, To: 1 << 30}))
	pop(record.PopCk{Client: 1, Session: true, AttemptID: []byte("w")}, 1, 1)

	t.o.Groups, t.o.Ordered = modelGroups, func(record.GroupID) bool { return true }
	apply(t.SetOrdered(1, true))
	for _, n := range []int{5, 40} {
		k := Key{Group: 1, Topic: 2, Queue: 3}
		t.Start(k, 0)
		items, next, err := t.PlanOrdered(k, 1<<20, n, 200, func(record.QueueOffset) Verdict { return Take }, nil)
		if err != nil {
			tb.Fatal(err)
		}
		pos += 400
		apply(t.ApplyLease(pos, &record.PopCk{Topic: 2, Group: 1, Until: 9, Ordered: true, Sections: []record.PopSection{{Queue: 3, Items: items, Next: next}}}))
	}
	apply(t.SetOrdered(1, false))
	return states
}

func TestDecodeRefusesCutStates(t *testing.T) {
	states := sampleStates(t)
	whole := states[len(states)-1]
	tab := New(Options{})
	if err := tab.Decode(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if err := tab.Decode(whole[:n]); !mqerr.Is(err, mqerr.Corrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
	if err := tab.Decode(append(bytes.Clone(whole), 0)); !mqerr.Is(err, mqerr.Corrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	if !bytes.Equal(tab.Encode(nil), whole) {
		t.Error("a state that was refused changed the table")
	}
	whole = bytes.Clone(whole)
	whole[0]++
	if err := tab.Decode(whole); !mqerr.Is(err, mqerr.Unsupported) {
		t.Errorf("a newer version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, state := range sampleStates(f) {
		f.Add(state)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tab := New(Options{Dead: modelDead})
		if err := tab.Decode(b); err != nil {
			if !mqerr.Is(err, mqerr.Corrupt) && !mqerr.Is(err, mqerr.Unsupported) {
				t.Fatalf("not the kind of a damaged state: %v", err)
			}
			if tab.Len() != 0 || len(tab.byKey) != 0 {
				t.Fatal("a state that was refused changed the table")
			}
			return
		}
		if fault := tab.check(); fault != "" {
			t.Fatalf("invariant: %s", fault)
		}
		once := tab.Encode(nil)
		again := New(Options{})
		if err := again.Decode(once); err != nil {
			t.Fatalf("encoded by us, but: %v", err)
		}
		if !bytes.Equal(again.Encode(nil), once) {
			t.Fatal("the same state has other bytes")
		}
		for _, now := range []int64{1, 1_700_000_000_000, untilMax} {
			for more := true; more; {
				tab.Advance(now, nil)
				at, ok := tab.NextDue()
				more = ok && at <= now
			}
			if fault := tab.check(); fault != "" {
				t.Fatalf("at %d: invariant: %s", now, fault)
			}
		}
		if !bytes.Equal(tab.Encode(nil), once) {
			t.Fatal("time changed the state")
		}
	})
}
