package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What nobody has ended is given up once its time is over, not before, and not what was made to last longer.
func TestOverdueGrowthIsGivenUp(t *testing.T) {
	s := New()
	index := Version(0)
	apply := func(c Command) Result {
		t.Helper()
		index++
		r, _ := s.Apply(index, c)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	apply(Init{Cluster: "c", Key: Secret{1}})
	apply(RegisterReplica{Shard: "a", Replica: 1, UUID: UUID{1}, Address: "127.0.0.1:1"})
	apply(PutTopic{Name: "orders", Type: FIFO, Queues: 2})
	began := apply(GrowTopic{Name: "orders", Queues: 4, UntilMS: 1000}).Version
	if over := s.Overdue(1000); len(over) != 0 {
		t.Fatalf("its time is not over: %v", over)
	}
	over := s.Overdue(1001)
	if d := cmp.Diff([]GrowTopic{{Name: "orders", Step: GrowAbort, Began: began, UntilMS: 1000}}, over); d != "" {
		t.Fatal(d)
	}
	apply(GrowTopic{Name: "orders", Queues: 4, UntilMS: 2000})
	if r := apply(over[0]); r.Changed {
		t.Fatal("it was made to last longer")
	}
	if r := apply(s.Overdue(2001)[0]); !r.Changed || r.Topic.Growing != nil || r.Topic.Queues() != 2 {
		t.Fatalf("%+v", r.Topic)
	}
}
