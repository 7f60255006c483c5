package route

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

func topic(id int, name string, queues ...int32) Topic {
	t := Topic{ID: brokerapi.TopicID(id), Name: name, Type: Normal}
	for i, q := range queues {
		t.Placements = append(t.Placements, Placement{Shard: brokerapi.ShardID(len(queues) - i), Queues: q})
	}
	return t
}

func TestApplyChangesAndDeletes(t *testing.T) {
	var table Table
	table.Apply(Update{Full: true, Topics: []Topic{topic(1, "a", 4), topic(2, "b", 1)}, Groups: []Group{{ID: 7, Name: "g"}}})
	before := table.Load()

	changed := topic(1, "a", 2, 6)
	changed.Type = FIFO
	table.Apply(Update{Topics: []Topic{changed, topic(3, "c", 1)}, DeletedTopics: []brokerapi.TopicID{2}, DeletedGroups: []brokerapi.GroupID{7}})
	now := table.Load()
	if a := now.Topic([]byte("a")); a == nil || a.Type != FIFO || a.Queues != 8 || a.Placements[0].Shard != 1 {
		t.Errorf("topic a is %+v", a)
	}
	if now.Topic([]byte("b")) != nil || now.TopicByID(2) != nil || now.Group([]byte("g")) != nil || now.GroupByID(7) != nil {
		t.Error("what was deleted is still there")
	}
	if now.TopicByID(3) == nil || len(now.Topics()) != 2 {
		t.Errorf("topics are %v", now.Topics())
	}
	if before.Topic([]byte("a")).Type != Normal || before.Topic([]byte("b")) == nil || before.Group([]byte("g")) == nil {
		t.Error("an older snapshot has changed")
	}

	table.Apply(Update{Full: true, Topics: []Topic{topic(9, "z", 1)}})
	if got := table.Load().Topics(); len(got) != 1 || got[0].Name != "z" {
		t.Errorf("after a full update topics are %v", got)
	}
}

// TestNameOfDeletedTopicUsedAgain has a name deleted and made again under a new id, in either order.
func TestNameOfDeletedTopicUsedAgain(t *testing.T) {
	var table Table
	table.Apply(Update{Topics: []Topic{topic(1, "a", 1)}})
	table.Apply(Update{Topics: []Topic{topic(2, "a", 1)}, DeletedTopics: []brokerapi.TopicID{1}})
	if got := table.Load().Topic([]byte("a")); got == nil || got.ID != 2 {
		t.Errorf("topic a is %+v, want the one with id 2", got)
	}
	if table.Load().TopicByID(1) != nil {
		t.Error("id 1 is still there")
	}
}

func TestGroupDefaults(t *testing.T) {
	var table Table
	table.Apply(Update{Groups: []Group{{ID: 1, Name: "plain"}, {ID: 2, Name: "own", MaxAttempts: 3, Backoff: []time.Duration{time.Second}}}})
	plain, own := table.Load().Group([]byte("plain")), table.Load().Group([]byte("own"))
	if plain.MaxAttempts != 17 || len(plain.Backoff) != 18 || plain.Backoff[17] != 2*time.Hour {
		t.Errorf("defaults are %+v", plain)
	}
	if own.MaxAttempts != 3 || len(own.Backoff) != 1 {
		t.Errorf("own values became %+v", own)
	}
}

func TestShardKeepsItsAddressWithoutMaster(t *testing.T) {
	var table Table
	table.Apply(Update{Shards: []Shard{{ID: 1, Name: "a", Address: "h:1", Epoch: 4, HasMaster: true}}})
	table.Apply(Update{Shards: []Shard{{ID: 1, Name: "a", Epoch: 5}}})
	got := table.Load().ShardByName([]byte("a"))
	if got == nil || got.HasMaster || got.Address != "h:1" || got.Epoch != 5 || got != table.Load().Shard(1) {
		t.Errorf("shard is %+v", got)
	}
}

func TestQueueList(t *testing.T) {
	var table Table
	table.Apply(Update{Topics: []Topic{topic(1, "a", 2, 3)}}) // shard 2 has 2 queues, shard 1 has 3
	a := table.Load().TopicByID(1)
	type home struct {
		shard brokerapi.ShardID
		queue brokerapi.QueueID
	}
	want := []home{{1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}}
	for i, w := range want {
		if shard, queue := a.QueueAt(i); (home{shard, queue}) != w {
			t.Errorf("queue %d is %d of shard %d, want %+v", i, queue, shard, w)
		}
	}
	if shard, queue := a.HomeOf(5*1000 + 3); (home{shard, queue}) != want[3] {
		t.Errorf("home is %d of shard %d", queue, shard)
	}
}

func TestTypes(t *testing.T) {
	if string(Mixed.Advertised()) != "\x01\x02\x03\x04" || string(Priority.Advertised()) != "\x06" || TopicType(0).Advertised() != nil {
		t.Error("advertised types are wrong")
	}
	for m := brokerapi.Normal; m <= brokerapi.Priority; m++ {
		for typ := Normal; typ <= Mixed; typ++ {
			if want := typ == Mixed || int(typ) == int(m); typ.Accepts(m) != want {
				t.Errorf("type %d accepts %d: %v", typ, m, !want)
			}
		}
	}
}

func TestWaitFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table Table
		go func() {
			time.Sleep(time.Second)
			table.Apply(Update{Topics: []Topic{topic(1, "other", 1)}})
			time.Sleep(time.Second)
			table.Apply(Update{Topics: []Topic{topic(2, "a", 1)}})
		}()
		start := time.Now()
		s, err := table.WaitFor(t.Context(), func(s *Snapshot) bool { return s.Topic([]byte("a")) != nil })
		if err != nil || s.Topic([]byte("a")) == nil || time.Since(start) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := table.WaitFor(ctx, func(s *Snapshot) bool { return s.Topic([]byte("b")) != nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for what never comes: %v", err)
		}
	})
}

func TestReadingAllocatesNothing(t *testing.T) {
	var table Table
	table.Apply(Update{Topics: []Topic{topic(1, "a", 1)}, Groups: []Group{{ID: 1, Name: "g"}}})
	a, g := []byte("a"), []byte("g")
	if n := testing.AllocsPerRun(100, func() {
		s := table.Load()
		if s.Topic(a) == nil || s.Group(g) == nil {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
