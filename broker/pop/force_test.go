package pop

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/store/record"
)

// holes replays the log without a part of it, a few times. Every record behind it is taken, the table is
// built as it should be, and nothing that is left to do is taken for done.
func (r *run) holes() {
	for range 2 {
		from := r.rng.IntN(len(r.log) + 1)
		to := min(len(r.log), from+1+r.rng.IntN(40))
		lost := r.opOf[min(from, len(r.opOf)):min(to, len(r.opOf))]
		if slices.Contains(r.opOf[min(from, len(r.opOf)):], "trim") {
			continue // its record counts what is lost, which is another number behind a hole
		}
		t := r.empty(map[record.GroupID]bool{})
		for i, rec := range r.log {
			if i == from {
				t.Behind(&Hole{Lease: 8, Now: r.model.now, Start: func(Key) record.QueueOffset { return 0 }})
			}
			if i >= from && i < to {
				continue
			}
			if err := rec(t); err != nil {
				r.t.Errorf("record %d behind a hole from %d to %d: %v", i, from, to, err)
				return
			}
			if i == to || i == to+8 || i == len(r.log)-1 {
				if fault := t.check(); fault != "" {
					r.t.Errorf("invariant after record %d, behind a hole from %d to %d: %s", i, from, to, fault)
					return
				}
			}
		}
		if again := r.empty(maps.Clone(r.groups[t])); again.Decode(t.Encode(nil)) != nil {
			r.t.Errorf("the state behind a hole from %d to %d cannot be decoded", from, to)
		}
		r.relocked(t.Encode(nil))
		moved := func(op string) bool { return op == "reset" || op == "drop" || op == "order" }
		if slices.ContainsFunc(lost, moved) || to > len(r.opOf) {
			continue // what was moved in the hole is where it was
		}
		for k, q := range r.model.queues {
			if got := t.recorded(k); got == nil {
				continue // it is read from its start
			} else if got.next > q.next {
				r.t.Errorf("%v: %d is next behind a hole from %d to %d, %d was", k, got.next, from, to, q.next)
			}
			for off := range q.undone {
				if s := t.Check(k, record.QueueOffset(off), 1<<40); s == Done {
					r.t.Errorf("%v: offset %d is done behind a hole from %d to %d, and was not", k, off, from, to)
					return
				}
			}
		}
	}
}

// relocked decodes a state where the groups of some messages are not known any more.
func (r *run) relocked(state []byte) {
	lost := r.rng.Uint64()
	groups := func(k Key, off record.QueueOffset, dst []uint64) (int, error) {
		n, err := modelGroups(k, off, dst)
		for i := range n {
			if lost>>((int(off)+i)%64)&1 != 0 {
				dst[i] = 0
			}
		}
		return n, err
	}
	o := modelOptions
	o.Groups = groups
	was, t := New(o), New(o)
	if was.Decode(state) != nil || t.Decode(state) != nil {
		r.t.Errorf("the state cannot be decoded")
		return
	}
	t.Behind(&Hole{Lease: 8, Now: r.model.now})
	if err := t.Relock(); err != nil {
		r.t.Errorf("%v", err)
	}
	if fault := t.check(); fault != "" {
		r.t.Errorf("invariant after groups were lost: %s", fault)
		return
	}
	for k, q := range t.byKey {
		if got, want := t.Undone(k, 0), was.Undone(k, 0); got != want {
			r.t.Errorf("%v: %d messages are un-done, %d were", k, got, want)
		}
		if q.locks == nil {
			continue
		}
		for hash, id := range q.locks.byHash {
			l := t.locks.at(id)
			for id := l.first; id != 0; id = t.link(id).next {
				if got, _ := t.hash(q, t.spotOf(id).offset()); got != hash {
					r.t.Errorf("%v: offset %d is of group %x, its lock of %x", k, t.spotOf(id).offset(), got, hash)
				}
			}
			if l.passed == nil {
				continue
			}
			w := l.passed.walk()
			for off, ok := w.next(); ok; off, ok = w.next() {
				if got, _ := t.hash(q, off); got != hash {
					r.t.Errorf("%v: offset %d is of group %x, it was passed over for %x", k, off, got, hash)
				}
			}
		}
	}
}

// TestOrderOfLostMessages: a group is handed messages in order from a record on that stands behind a hole, and
// some of what it has in flight was lost. Those are a message group; the others are known.
func TestOrderOfLostMessages(t *testing.T) {
	lost := false
	tab := New(Options{Groups: func(_ Key, off record.QueueOffset, dst []uint64) (int, error) {
		if lost && off >= 2 {
			return 0, nil
		}
		dst[0] = uint64(off) + 10
		return 1, nil
	}})
	k := Key{Group: 1, Topic: 1}
	ck := &record.PopCk{Group: 1, Topic: 1, Until: 1000, Sections: []record.PopSection{{Items: []record.PopItem{
		{Offset: 0, Attempt: 1, Prev: -1}, {Offset: 1, Attempt: 1, Prev: -1}, {Offset: 2, Attempt: 1, Prev: -1}, {Offset: 3, Attempt: 1, Prev: -1},
	}}}}
	require.NoError(t, tab.ApplyLease(64, ck))
	lost = true
	tab.Behind(&Hole{Lease: 128, Start: func(Key) record.QueueOffset { return 0 }})
	require.NoError(t, tab.SetOrdered(1, true))
	tab.Behind(nil)
	require.Empty(t, tab.check())
	tab.Advance(2000, func(Key, int) {})
	require.Empty(t, tab.check())
	require.Equal(t, int64(4), tab.Undone(k, 0))
	require.NoError(t, tab.ApplyAck(&record.PopAck{Sections: []record.AckSection{{Group: 1, Topic: 1, Offsets: []record.QueueOffset{0, 1, 2, 3}}}}))
	require.Empty(t, tab.check())
	require.Zero(t, tab.Undone(k, 0))
	require.NoError(t, New(Options{}).Decode(tab.Encode(nil)))
}
