package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// logOf returns the index of a log of these spans that begins at first.
func logOf(t *testing.T, first record.Pos, spans ...Span) *Index {
	t.Helper()
	end := first
	if len(spans) > 0 {
		end = spans[len(spans)-1].End
	}
	x, err := Restore(first, end, spans)
	require.NoError(t, err)
	return x
}

func helloOf(x *Index, confirm record.Pos) *Hello {
	return &Hello{First: x.First(), End: x.End(), Confirm: confirm, Spans: x.Page(nil, NewestPage, PageMax)}
}

func TestIndex(t *testing.T) {
	x := New(0)
	require.NoError(t, x.Append(1, 0, 40))
	require.NoError(t, x.Append(1, 40, 80))
	require.NoError(t, x.Append(4, 80, 100))
	require.NoError(t, x.Append(9, 100, 160))
	require.Equal(t, []Span{{1, 0, 80}, {4, 80, 100}, {9, 100, 160}}, x.Spans(nil))
	require.Equal(t, []Span{{9, 100, 160}, {4, 80, 100}}, x.Page(nil, NewestPage, 2))
	require.Equal(t, []Span{{1, 0, 80}}, x.Page(nil, 4, 2), "the page after that")

	require.Error(t, x.Append(8, 160, 200), "an epoch goes back")
	require.Error(t, x.Append(0, 160, 200))
	require.Error(t, x.Append(9, 168, 200), "a gap")
	require.Error(t, x.Append(9, 160, 160), "nothing")
	require.Equal(t, record.Pos(160), x.End(), "a refusal changes nothing")

	for pos, epoch := range map[record.Pos]record.Epoch{0: 1, 79: 1, 80: 4, 99: 4, 100: 9, 159: 9} {
		s, ok := x.At(pos)
		require.True(t, ok)
		require.Equal(t, epoch, s.Epoch, pos)
	}
	_, ok := x.At(160)
	require.False(t, ok)
	_, ok = x.Find(5)
	require.False(t, ok)

	require.NoError(t, x.DropBelow(80))
	require.Equal(t, []Span{{4, 80, 100}, {9, 100, 160}}, x.Spans(nil), "an epoch that ends at the first position is gone")
	require.NoError(t, x.DropBelow(90))
	require.Equal(t, []Span{{4, 80, 100}, {9, 100, 160}}, x.Spans(nil), "the true start stays")
	require.Error(t, x.Truncate(89))
	require.Error(t, x.Truncate(161))
	require.Error(t, x.DropBelow(89))
	require.NoError(t, x.Truncate(100))
	require.Equal(t, record.Epoch(4), x.Epoch(), "an epoch that begins at the cut is gone")
	require.NoError(t, x.DropBelow(100))
	require.Equal(t, []Span{{4, 80, 100}}, x.Spans(nil), "the newest epoch stays known")
	require.NoError(t, x.Check())
	require.Error(t, x.Append(3, 100, 140), "also behind a log that was deleted")
	require.NoError(t, x.Append(4, 100, 140))
}

func TestRestoreRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		first, end record.Pos
		spans      []Span
	}{
		"a gap":                {0, 20, []Span{{1, 0, 8}, {2, 10, 20}}},
		"epochs out of order":  {0, 20, []Span{{2, 0, 10}, {1, 10, 20}}},
		"two at one start":     {0, 20, []Span{{1, 0, 0}, {2, 0, 20}}},
		"an end beyond":        {0, 20, []Span{{1, 0, 30}}},
		"no epoch at first":    {0, 20, []Span{{1, 5, 20}}},
		"no epoch at all":      {0, 20, nil},
		"below the first":      {15, 20, []Span{{1, 0, 10}, {2, 10, 20}, {3, 20, 20}}},
		"negative":             {-5, 20, []Span{{1, -5, 20}}},
		"ends before it began": {20, 10, nil},
		"epoch 0":              {0, 20, []Span{{0, 0, 20}}},
	} {
		_, err := Restore(test.first, test.end, test.spans)
		require.Truef(t, mqerr.Is(err, mqerr.Corrupt), "%s: %v", name, err)
	}
}

func TestReconcile(t *testing.T) {
	for name, test := range map[string]struct {
		master, follower *Index
		confirm          record.Pos
		want             Answer
	}{
		"both empty":        {New(0), New(0), 0, Answer{Resume, 0}},
		"a new follower":    {logOf(t, 0, Span{1, 0, 50}), New(0), 0, Answer{Resume, 0}},
		"new, log deleted":  {logOf(t, 20, Span{1, 0, 50}), New(0), 0, Answer{Verdict: Snapshot}},
		"a shorter log":     {logOf(t, 0, Span{1, 0, 50}), logOf(t, 0, Span{1, 0, 30}), 30, Answer{Resume, 30}},
		"an older epoch":    {logOf(t, 0, Span{1, 0, 50}, Span{3, 50, 90}), logOf(t, 0, Span{1, 0, 50}), 30, Answer{Resume, 50}},
		"a tail of its own": {logOf(t, 0, Span{1, 0, 50}, Span{3, 50, 90}), logOf(t, 0, Span{1, 0, 60}), 30, Answer{Truncate, 50}},
		"an epoch of its own": {
			logOf(t, 0, Span{1, 0, 50}, Span{3, 50, 90}), logOf(t, 0, Span{1, 0, 40}, Span{2, 40, 90}), 40, Answer{Truncate, 40},
		},
		"acknowledged bytes of its own": {
			logOf(t, 0, Span{1, 0, 50}, Span{3, 50, 90}), logOf(t, 0, Span{1, 0, 40}, Span{2, 40, 90}), 41, Answer{Verdict: Diverged},
		},
		"longer than the master": {logOf(t, 0, Span{1, 0, 50}), logOf(t, 0, Span{1, 0, 60}), 50, Answer{Truncate, 50}},
		"other from the start":   {logOf(t, 0, Span{2, 0, 50}), logOf(t, 0, Span{1, 0, 60}), 0, Answer{Truncate, 0}},
		"wholly other":           {logOf(t, 0, Span{2, 0, 50}), logOf(t, 0, Span{1, 0, 60}), 8, Answer{Verdict: Diverged}},
		"the same epoch at another start": {
			logOf(t, 0, Span{1, 0, 50}, Span{3, 50, 90}), logOf(t, 0, Span{1, 0, 40}, Span{3, 40, 90}), 0, Answer{Truncate, 40},
		},
		"too far behind": {logOf(t, 60, Span{1, 0, 70}, Span{2, 70, 80}), logOf(t, 0, Span{1, 0, 50}), 50, Answer{Verdict: Snapshot}},
		"behind what is deleted": {
			logOf(t, 75, Span{2, 70, 80}), logOf(t, 0, Span{1, 0, 50}), 50, Answer{Verdict: Snapshot},
		},
		"acknowledged in an epoch that is not here": {
			logOf(t, 75, Span{2, 70, 80}), logOf(t, 0, Span{1, 0, 90}), 76, Answer{Verdict: Diverged},
		},
		"start unknown at the master": {
			logOf(t, 20, Span{1, 20, 50}), logOf(t, 0, Span{1, 0, 60}), 10, Answer{Truncate, 50},
		},
		"start unknown at the follower": {
			logOf(t, 0, Span{1, 0, 50}), logOf(t, 20, Span{1, 20, 30}), 30, Answer{Resume, 30},
		},
		"cut before its own beginning": {
			logOf(t, 0, Span{1, 0, 30}, Span{2, 30, 90}), logOf(t, 40, Span{1, 0, 60}), 0, Answer{Verdict: Snapshot},
		},
	} {
		got, err := test.master.Reconcile(helloOf(test.follower, test.confirm))
		require.NoError(t, err, name)
		require.Equal(t, test.want, got, name)
	}
}

// Two faults of epoch lists that hold starts only, from the reference server. Here every epoch has a record of its
// own, so neither list of spans can come about; the shapes that those logs have here are told apart.
func TestFaultsOfEpochLists(t *testing.T) {
	// A began epoch 3 at 1000, wrote there and died. B, elected for epoch 4, began at 1000, too.
	a, b := New(0), New(0)
	for _, x := range []*Index{a, b} {
		require.NoError(t, x.Append(2, 0, 1000))
	}
	require.NoError(t, a.Append(3, 1000, 1400))
	require.NoError(t, b.Append(4, 1000, 2000))
	got, err := b.Reconcile(helloOf(a, 1000))
	require.NoError(t, err)
	require.Equal(t, Answer{Truncate, 1000}, got, "what A wrote at the same start is cut")
	require.NoError(t, a.Truncate(1000))
	require.NoError(t, a.Append(4, 1000, 1500))
	require.Equal(t, []Span{{2, 0, 1000}, {4, 1000, 1500}}, a.Spans(nil), "the label is that of what is there")

	// A master that restarts gets a new epoch, so its followers match all that they have.
	require.NoError(t, b.Append(5, 2000, 2100))
	got, err = b.Reconcile(helloOf(a, 1500))
	require.NoError(t, err)
	require.Equal(t, Answer{Resume, 1500}, got)
	// Had it gone on in epoch 4 and deleted the entry, nothing that was acknowledged would be cut for it.
	again := logOf(t, 0, Span{2, 0, 2000}, Span{4, 2000, 2100})
	got, err = again.Reconcile(helloOf(a, 1500))
	require.NoError(t, err)
	require.Equal(t, Answer{Verdict: Diverged}, got)
}

func TestReconcilePages(t *testing.T) {
	master, follower := New(0), New(0)
	require.NoError(t, master.Append(1, 0, 8))
	require.NoError(t, follower.Append(1, 0, 8))
	for i := range 3 * PageMax { // epochs in which the follower led nobody
		require.NoError(t, follower.Append(record.Epoch(2+i), record.Pos(8+8*i), record.Pos(16+8*i)))
	}
	require.NoError(t, master.Append(1000, 8, 16))
	h := helloOf(follower, 8)
	pages := 1
	for ; ; pages++ {
		a, err := master.Reconcile(h)
		require.NoError(t, err)
		if a.Verdict != MoreSpans {
			require.Equal(t, Answer{Truncate, 8}, a)
			break
		}
		h.Spans = follower.Page(nil, h.Spans[len(h.Spans)-1].Epoch, PageMax)
	}
	require.Equal(t, 4, pages)
}

func TestReconcileRefuses(t *testing.T) {
	x := logOf(t, 0, Span{1, 0, 50})
	for name, h := range map[string]Hello{
		"confirmed beyond its end": {End: 8, Confirm: 16, Spans: []Span{{1, 0, 8}}},
		"negative confirm":         {End: 8, Confirm: -1, Spans: []Span{{1, 0, 8}}},
		"negative first":           {First: -8, End: 8, Spans: []Span{{1, -8, 8}}},
		"ends before it begins":    {First: 16, End: 8},
		"no epoch":                 {End: 8},
		"epoch 0":                  {End: 8, Spans: []Span{{0, 0, 8}}},
		"oldest first":             {End: 16, Spans: []Span{{1, 0, 8}, {2, 8, 16}}},
		"one epoch twice":          {End: 16, Spans: []Span{{2, 8, 16}, {2, 0, 8}}},
		"an empty epoch":           {End: 16, Spans: []Span{{2, 16, 16}, {1, 0, 16}}},
		"a gap":                    {End: 16, Spans: []Span{{2, 8, 16}, {1, 0, 4}}},
		"beyond the end":           {End: 16, Spans: []Span{{2, 8, 24}}},
		"below the first":          {First: 8, End: 16, Spans: []Span{{2, 8, 16}, {1, 0, 8}}},
		"too many":                 {End: 1 << 20, Spans: make([]Span, PageMax+1)},
	} {
		_, err := x.Reconcile(&h)
		require.Truef(t, mqerr.Is(err, mqerr.Invalid), "%s: %v", name, err)
	}
}

func TestCheckTail(t *testing.T) {
	tail := Tail{Pos: 40, Size: 8, CRC: 7}
	resume := Answer{Resume, 48}
	require.Equal(t, resume, resume.CheckTail(tail, tail))
	require.Equal(t, resume, resume.CheckTail(Tail{}, tail), "an unknown tail proves nothing")
	other := tail
	other.CRC++
	require.Equal(t, Answer{Verdict: Diverged}, resume.CheckTail(tail, other))
	require.Equal(t, Diverged, resume.CheckTail(tail, Tail{}).Verdict, "the master has no record there")
	cut := Answer{Truncate, 40}
	require.Equal(t, cut, cut.CheckTail(tail, other))
}

func TestVerdictNames(t *testing.T) {
	require.Equal(t, "diverged below confirm", Diverged.String())
	require.Equal(t, "verdict 77", Verdict(77).String())
}
