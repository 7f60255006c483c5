package chaostest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// version is the value of a broker group's register: who leads, and who has everything.
type version struct {
	group       string
	epoch, set  uint64
	master      uint32
	incarnation uint64
	inSync      string
}

func versionOf(s *controllerv1.Shard) version {
	in := slices.Sorted(slices.Values(s.GetSyncStateSet()))
	return version{s.GetName(), s.GetEpoch(), s.GetSetVersion(), s.GetMaster(), s.GetMasterIncarnation(), strings.Trim(fmt.Sprint(in), "[]")}
}

// after compares two versions of a group. A master that resigns leaves its epoch and set behind without one.
func after(a, b version) int {
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.set, b.set), cmp.Compare(a.over(), b.over()))
}

func (v version) over() int {
	if v.master == 0 {
		return 1
	}
	return 0
}

// read is what somebody saw of a register.
type read struct{ version }

// register is a register of one broker group: it goes from one version to a later one, by itself, and everybody sees the same.
// Controllers may show what was, but each stream goes forward.
var register = porcupine.Model{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, op := range all {
			g := op.Output.(read).group
			by[g] = append(by[g], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range by {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return version{} },
	Step: func(state, _, output any) (bool, any) {
		s, o := state.(version), output.(read).version
		switch c := after(o, s); {
		case c < 0, c == 0 && o != s:
			return false, s
		case o.epoch == s.epoch && s.master != 0 && o.master != 0 && (o.master != s.master || o.incarnation != s.incarnation):
			return false, s // an epoch belongs to one replica in one run
		}
		return true, o
	},
}

// election is one that somebody asked for: unlike what is shown, it is no older than the question.
type election struct {
	from, to time.Duration
	shard    *controllerv1.Shard // as it was answered
}

// judge checks what controllers showed of the broker groups, and elections.
func judge(seen []sight, elected []election) error {
	var ops []porcupine.Operation
	last := map[[2]int]map[string]version{}
	first := map[version]bool{}
	index := map[string]version{} // of a group at an index of Raft
	for _, s := range seen {
		v, k := versionOf(s.shard), [2]int{s.controller, s.stream}
		if last[k] == nil {
			last[k] = map[string]version{}
		}
		if b, is := last[k][v.group]; is && after(v, b) < 0 {
			return fmt.Errorf("controller %d showed %+v after %+v on one stream", s.controller+1, v, b)
		}
		last[k][v.group] = v
		at := fmt.Sprintf("%s at %d", v.group, s.index)
		if b, is := index[at]; is && b != v {
			return fmt.Errorf("two controllers showed %s of Raft: %+v and %+v", at, b, v)
		}
		index[at] = v
		if first[v] {
			continue // a later sight of the same says less
		}
		first[v] = true
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Call: 0, Output: read{v}, Return: int64(s.at)})
	}
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return after(a.Output.(read).version, b.Output.(read).version) })
	for i := range ops {
		ops[i].Call = int64(i) // the order to try first
	}
	for _, e := range elected {
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Call: int64(e.from), Output: read{versionOf(e.shard)}, Return: int64(e.to)})
	}
	if porcupine.CheckOperationsTimeout(register, ops, 10*time.Second) == porcupine.Illegal {
		return fmt.Errorf("what controllers showed of broker groups is no register's: %s", tell(ops))
	}
	return nil
}

func tell(ops []porcupine.Operation) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "\n  %+v", op.Output.(read).version)
	}
	return b.String()
}

// TestJudge shows that broken registers are found.
func TestJudge(t *testing.T) {
	shard := func(epoch, set uint64, master uint32, in ...uint32) *controllerv1.Shard {
		return &controllerv1.Shard{Name: "a", Epoch: epoch, SetVersion: set, Master: master, MasterIncarnation: uint64(master), SyncStateSet: in}
	}
	at := func(controller int, ms int, index uint64, s *controllerv1.Shard) sight {
		return sight{controller, 0, time.Duration(ms) * time.Millisecond, index, s}
	}
	one, two, over, three := shard(1, 1, 1, 1), shard(1, 2, 1, 1, 2), shard(1, 2, 0, 1, 2), shard(2, 3, 2, 2)
	require.NoError(t, judge([]sight{at(0, 1, 10, one), at(0, 2, 11, two), at(1, 3, 10, one), at(0, 4, 12, over), at(1, 5, 13, three)}, nil))
	require.NoError(t, judge([]sight{at(0, 1, 10, one), at(0, 9, 12, three)}, []election{{5e6, 6e6, three}}))
	for name, seen := range map[string][]sight{
		"back on one stream":            {at(0, 1, 10, two), at(0, 2, 11, one)},
		"a master that comes back":      {at(0, 1, 10, two), at(0, 2, 11, over), at(0, 3, 12, two)},
		"two at one index":              {at(0, 1, 10, one), at(1, 2, 10, two)},
		"two sets of one version":       {at(0, 1, 10, two), at(1, 2, 11, shard(1, 2, 1, 1, 3))},
		"two masters of one epoch":      {at(0, 1, 10, one), at(1, 2, 11, shard(1, 2, 2, 2))},
		"two incarnations in one epoch": {at(0, 1, 10, one), at(1, 2, 11, &controllerv1.Shard{Name: "a", Epoch: 1, SetVersion: 2, Master: 1, MasterIncarnation: 7})},
	} {
		require.Error(t, judge(seen, nil), name)
	}
	require.Error(t, judge([]sight{at(0, 1, 12, three)}, []election{{5e6, 6e6, two}}), "an election older than its question")
}
