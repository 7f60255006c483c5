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
