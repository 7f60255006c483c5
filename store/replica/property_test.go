package replica

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/testseed"
	"github.com/perigee-mq/perigee/store/record"
)

// naive is a log as a list of its records, none of it deleted.
type naive []naiveRecord

type naiveRecord struct {
	epoch record.Epoch
	value uint64 // no two records that were written are the same
	size  record.Pos
}

// common is the number of first records that two logs share, and where they end.
func common(a, b naive) (n int, end record.Pos) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		end += a[n].size
		n++
	}
	return n, end
}

// at returns the number of records before a position, which must be a boundary.
func (l naive) at(t *testing.T, pos record.Pos) int {
	var end record.Pos
	for i, r := range l {
		if end == pos {
			return i
		}
		end += r.size
	}
	require.Equal(t, pos, end, "a boundary of a record")
	return len(l)
}

// replicaLog is a log and its index; what lies below the index's first position is deleted from it in truth.
type replicaLog struct {
	log   naive
	index *Index
}

func (r *replicaLog) append(t *testing.T, rec naiveRecord) {
	require.NoError(t, r.index.Append(rec.epoch, r.index.End(), r.index.End()+rec.size))
	r.log = append(slices.Clip(r.log), rec)
}

func (r *replicaLog) cut(t *testing.T, to record.Pos) {
	r.log = r.log[:r.log.at(t, to)]
	require.NoError(t, r.index.Truncate(to))
}

// rebuilt is the index as the records that are left tell it.
func (r *replicaLog) rebuilt(t *testing.T) *Index {
	x := New(r.index.First())
	var pos record.Pos
	for _, rec := range r.log {
		if pos >= x.First() {
			require.NoError(t, x.Append(rec.epoch, pos, pos+rec.size))
		}
		pos += rec.size
	}
	return x
}

// TestCommonPrefix lets replicas follow one master after another, each with some of the others' records and some of
// its own, deletes beginnings, and compares what Reconcile says with the records themselves.
func TestCommonPrefix(t *testing.T) {
	seed := testseed.First(t)
	for i := range uint64(2000) {
		commonPrefix(t, seed+i)
		if t.Failed() {
			t.Fatalf("seed %d", seed+i)
		}
	}
}

func commonPrefix(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	replicas := make([]replicaLog, 2+rng.IntN(3))
	for i := range replicas {
		replicas[i].index = New(0)
	}
	var value uint64
	for epoch := record.Epoch(1); epoch < record.Epoch(3+rng.IntN(12)); epoch++ {
		master := &replicas[rng.IntN(len(replicas))]
		for range 1 + rng.IntN(5) {
			value++
			master.append(t, naiveRecord{epoch, value, record.Pos(8 * (1 + rng.IntN(4)))})
		}
		for i := range replicas {
			if f := &replicas[i]; f != master && rng.IntN(3) > 0 {
				follow(t, rng, master, f)
			}
		}
		for i := range replicas {
			if r := &replicas[i]; rng.IntN(8) == 0 && len(r.log) > 0 {
				n, pos := rng.IntN(len(r.log)+1), record.Pos(0)
				for _, rec := range r.log[:n] {
					pos += rec.size
				}
				if pos >= r.index.First() {
					require.NoError(t, r.index.DropBelow(pos))
				}
			}
			require.NoError(t, replicas[i].index.Check())
			again, err := Restore(replicas[i].index.First(), replicas[i].index.End(), replicas[i].index.Spans(nil))
			require.NoError(t, err)
			require.Equal(t, replicas[i].index.Spans(nil), again.Spans(nil))
		}
	}
}

// follow reconciles f with master, and copies some records if that can be.
func follow(t *testing.T, rng *rand.Rand, master, f *replicaLog) {
	n, same := common(master.log, f.log)
	mine, theirs := master.index, f.index
	if rng.IntN(3) == 0 { // the starts of cut epochs were lost
		mine = master.rebuilt(t)
	}
	if rng.IntN(3) == 0 {
		theirs = f.rebuilt(t)
	}
	var confirm record.Pos
	if rng.IntN(2) == 0 && len(f.log) > 0 {
		for _, rec := range f.log[:rng.IntN(len(f.log)+1)] {
			confirm += rec.size
		}
	}
	h := Hello{First: theirs.First(), End: theirs.End(), Confirm: confirm}
	before := NewestPage
	var a Answer
	for {
		h.Spans = theirs.Page(nil, before, 1+rng.IntN(3))
		var err error
		a, err = mine.Reconcile(&h)
		require.NoError(t, err)
		if a.Verdict != MoreSpans {
			break
		}
		before = h.Spans[len(h.Spans)-1].Epoch
	}
	first := max(master.index.First(), f.index.First())
	switch a.Verdict {
	case Resume, Truncate:
		require.Equal(t, same, a.At, "the longest common prefix")
		require.Equal(t, a.Verdict == Resume, a.At == f.index.End())
		require.GreaterOrEqual(t, a.At, max(first, confirm))
		f.cut(t, a.At)
		for _, rec := range master.log[n:] {
			if rng.IntN(4) == 0 {
				break
			}
			f.append(t, rec)
		}
	case Diverged:
		require.Less(t, same, confirm, "it has acknowledged bytes that the master has not")
	case Snapshot:
		require.Positive(t, first, "a whole log needs none")
		require.True(t, same <= first, "%d is common, %d is there in both", same, first)
		if same < confirm {
			require.LessOrEqual(t, confirm, first, "what differs below confirm can't be looked at any more")
		}
	default:
		t.Fatalf("%v", a.Verdict)
	}
}

func FuzzReconcile(f *testing.F) {
	f.Add([]byte{1, 0, 9, 2, 9, 30}, []byte{1, 0, 9, 3, 9, 20}, byte(0), byte(20), byte(5))
	f.Fuzz(func(t *testing.T, mine, theirs []byte, first, end, confirm byte) {
		spans := func(b []byte) (all []Span) {
			for ; len(b) >= 3; b = b[3:] {
				all = append(all, Span{record.Epoch(b[0]), record.Pos(int8(b[1])), record.Pos(int8(b[2]))})
			}
			return all
		}
		own := spans(mine)
		x, err := Restore(0, 127, own)
		if err != nil {
			x = New(0)
		}
		h := Hello{First: record.Pos(int8(first)), End: record.Pos(int8(end)), Confirm: record.Pos(int8(confirm)), Spans: spans(theirs)}
		a, err := x.Reconcile(&h)
		if err != nil {
			require.Equal(t, Answer{}, a)
			return
		}
		if a.Verdict == Resume || a.Verdict == Truncate {
			require.True(t, a.At >= h.Confirm && a.At >= h.First && a.At <= h.End && a.At <= x.End(), "%+v", a)
		}
	})
}
