package state

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLeastCopies: a group of three in sync needs two copies, unless somebody has chosen another number.
func TestLeastCopies(t *testing.T) {
	for name, c := range map[string]struct {
		founded int
		set     *int // by an operator, before
		size    int
		want    int
	}{
		"two":             {size: 2, want: 1},
		"three":           {size: 3, want: 2},
		"founded with 1":  {founded: 1, size: 3, want: 1},
		"founded with 3":  {founded: 3, size: 3, want: 3},
		"set to 1 by one": {set: new(1), size: 3, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			index := Version(0)
			do := func(c Command) *Shard {
				index++
				r, _ := c.apply(s, index)
				require.NoError(t, r.Err)
				return r.Shard
			}
			do(Init{Cluster: "c"})
			var members []Member
			var h *Shard
			for id := ReplicaID(1); int(id) <= c.size; id++ {
				h = do(Enroll{RegisterReplica: RegisterReplica{Cluster: "c", Shard: "a", Replica: id, UUID: UUID{byte(id)}, Address: "h:1"}, MinISR: c.founded})
				members = append(members, Member{id, h.Replica(id).Incarnation})
			}
			h = do(Elect{Shard: h.ID, Epoch: h.Epoch, Winner: 1, Inc: members[0].Inc})
			if c.set != nil {
				h = do(SetShard{Shard: h.ID, MinISR: c.set})
			}
			h = do(AlterS{Shard: h.ID, Epoch: h.Epoch, Master: members[0], SetVersion: h.SetVersion, Set: members, Least: 2})
			require.Equal(t, c.want, h.MinISR)
			h = do(AlterS{Shard: h.ID, Epoch: h.Epoch, Master: members[0], SetVersion: h.SetVersion, Set: members[:1], Least: 2})
			require.Equal(t, c.want, h.MinISR, "it does not change when replicas go")
			if c.size > 1 && c.want > 1 {
				require.Len(t, h.ELR, c.size-1)
			}
		})
	}
}

// TestLeaves: a master whose process stops leaves the SyncStateSet with its resignation, unless nobody else is in it.
func TestLeaves(t *testing.T) {
	for name, c := range map[string]struct {
		members, minISR int
		leaves          bool
		set, elr        []ReplicaID
	}{
		"stays":            {3, 2, false, []ReplicaID{1, 2, 3}, nil},
		"leaves":           {3, 2, true, []ReplicaID{2, 3}, nil},
		"below the copies": {2, 2, true, []ReplicaID{2}, []ReplicaID{1}},
		"alone":            {1, 1, true, []ReplicaID{1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, h, members := crowned(t, c.members, c.minISR)
			r, _ := Resign{Shard: h.ID, Epoch: h.Epoch, Replica: 1, Inc: members[0].Inc, Leaves: c.leaves}.apply(s, 100)
			require.NoError(t, r.Err)
			require.Zero(t, r.Shard.Master)
			require.Equal(t, c.set, r.Shard.Set)
			require.Equal(t, c.elr, r.Shard.ELR)
		})
	}
}

// crowned makes a group whose replicas are all in sync, led by the first.
func crowned(t *testing.T, n, minISR int) (s *State, h *Shard, members []Member) {
	t.Helper()
	s = New()
	index := Version(0)
	do := func(c Command) {
		index++
		r, _ := c.apply(s, index)
		require.NoError(t, r.Err)
		if r.Shard != nil {
			h = r.Shard
		}
	}
	do(Init{Cluster: "c"})
	for id := ReplicaID(1); int(id) <= n; id++ {
		do(Enroll{RegisterReplica: RegisterReplica{Cluster: "c", Shard: "a", Replica: id, UUID: UUID{byte(id)}, Address: "h:1"}, MinISR: minISR})
		members = append(members, Member{id, h.Replica(id).Incarnation})
	}
	do(Elect{Shard: h.ID, Epoch: h.Epoch, Winner: 1, Inc: members[0].Inc})
	if n > 1 {
		do(AlterS{Shard: h.ID, Epoch: h.Epoch, Master: members[0], SetVersion: h.SetVersion, Set: members})
	}
	return s, h, members
}
