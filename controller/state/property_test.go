package state

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

func snapshotOf(t interface{ Fatal(...any) }, s *State) []byte {
	var b bytes.Buffer
	if err := s.WriteSnapshot(&b, testRelease); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// drawCommand draws a command that has a fair chance to fit the state.
func drawCommand(t *rapid.T, s *State) Command {
	pick := func(label string, names ...string) string { return rapid.SampledFrom(names).Draw(t, label) }
	num := func(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, label) }
	h := s.Shard(ShardID(num("shard", 1, 3)))
	if h == nil {
		h = &Shard{ID: 1}
	}
	off := func() uint64 { return uint64(max(num("off", -8, 1), 0)) } // mostly 0: the value fits
	inc := func(id ReplicaID) Incarnation {
		if r := h.Replica(id); r != nil {
			return r.Incarnation - Incarnation(off())
		}
		return 0
	}
	switch num("command", 0, 17) {
	case 14, 15:
		shard, id := num("shard name", 1, 3), num("replica", 1, 3)
		c := Enroll{
			RegisterReplica: RegisterReplica{
				Shard: fmt.Sprintf("s%d", shard), Replica: ReplicaID(id), UUID: UUID{byte(shard), byte(id), byte(off())},
				Address: "127.0.0.1:1", Clean: rapid.Bool().Draw(t, "clean"),
			},
			Damaged: off() > 0, Learner: off() > 0, MinISR: num("copies", -1, 3), Commit: Commit(num("mode", 0, 2)),
		}
		if have := s.ShardNamed(c.Shard); have != nil {
			c.MaxEpoch = have.Epoch
			if r := have.Replica(c.Replica); r != nil {
				c.Last = r.Incarnation
			}
		}
		return c
	case 16:
		w := ReplicaID(num("winner", 1, 3))
		return UncleanElect{Shard: h.ID, Epoch: h.Epoch - Epoch(off()), Winner: w, Inc: inc(w), Token: pick("token", "a", "b", "")}
	case 17:
		switch num("what", 0, 5) {
		case 0:
			return DeleteShard{Shard: h.ID}
		case 1:
			return RaiseGeneration{From: s.Generation() + uint16(off())}
		case 2:
			id := ReplicaID(num("replica", 1, 3))
			return RemoveReplica{Shard: h.ID, Replica: id, Inc: inc(id)}
		case 3:
			return SetShard{Shard: h.ID, Commit: new(Commit(num("mode", 0, 2)))}
		}
		return SetShard{Shard: h.ID, MinISR: new(num("copies", 0, 4))}
	case 13:
		id := pick("controller", "c1", "c2", "")
		if rapid.Bool().Draw(t, "leaves") {
			return RemoveController{ID: id}
		}
		return PutController{Controller{ID: id, UUID: UUID{byte(num("directory", 0, 4))}, Address: pick("address", "127.0.0.1:1", "127.0.0.1:2", "", "x")}}
	case 0:
		return Init{Cluster: "c1", Key: Secret{1}}
	case 1, 2:
		shard, id := num("shard name", 1, 3), num("replica", 1, 3)
		c := RegisterReplica{
			Shard: fmt.Sprintf("s%d", shard), Replica: ReplicaID(id), UUID: UUID{byte(shard), byte(id), byte(off())},
			Address: "127.0.0.1:1", Clean: rapid.Bool().Draw(t, "clean"),
		}
		if have := s.ShardNamed(c.Shard); have != nil {
			c.MaxEpoch = have.Epoch + Epoch(off())
			if r := have.Replica(c.Replica); r != nil {
				c.Last = r.Incarnation
			}
		}
		return c
	case 3, 4:
		w := ReplicaID(num("winner", 1, 3))
		return Elect{Shard: h.ID, Epoch: h.Epoch - Epoch(off()), Winner: w, Inc: inc(w)}
	case 5:
		return Resign{Shard: h.ID, Epoch: h.Epoch, Replica: h.Master, Inc: h.MasterInc - Incarnation(off())}
	case 6, 7:
		c := AlterS{Shard: h.ID, Epoch: h.Epoch, Master: Member{h.Master, h.MasterInc}, SetVersion: h.SetVersion - off()}
		for id := ReplicaID(1); id <= 3; id++ {
			if id == h.Master || rapid.Bool().Draw(t, "member") {
				c.Set = append(c.Set, Member{id, inc(id)})
			}
		}
		return c
	case 8:
		return SetApplied{Shard: h.ID, Epoch: h.Epoch, Replica: h.Master, Inc: h.MasterInc, Applied: Version(num("applied", 0, 100))}
	case 9:
		return PutTopic{
			Name: pick("topic", "a", "b", "c", ""), Type: TopicType(num("type", 0, 8)), Queues: num("queues", 0, 20),
			Flush: Flush(num("flush", 0, 2)), Mode: Mode(num("mode", 0, 3)), Limits: limitsOf(t),
		}
	case 10:
		n := num("attempts", 0, 20)
		if rapid.Bool().Draw(t, "retry") {
			c := PutGroup{Name: pick("group", "a", "b", "c"), Mode: Mode(num("mode", 0, 3))}
			if rapid.Bool().Draw(t, "list") {
				c.BackoffMS = []int64{int64(num("delay", -1, 9))}
			} else {
				c.Exponential = &Growth{InitialMS: int64(num("initial", 0, 9)), MaxMS: int64(num("max", 0, 9)), Multiplier: num("factor", 900, 1100)}
			}
			return c
		}
		return PutGroup{Name: pick("group", "a", "b", "c"), MaxAttempts: &n, From: From(num("from", 0, 3)), Mode: Mode(num("mode", 0, 3))}
	case 11:
		switch num("what", 0, 5) {
		case 3, 4, 5:
			c := GrowTopic{
				Name: pick("grown", "a", "b", "c", "%DLQ%a"), Step: GrowStep(num("step", 0, 3)), Queues: num("queues", 0, 20), UntilMS: int64(num("until", 0, 3)),
			}
			if have := s.Topic(c.Name); have != nil && have.Growing != nil {
				c.Began = have.Growing.Began - Version(off())
			}
			return c
		case 0:
			return DeleteTopic{Name: pick("topic", "a", "b", "c", "%DLQ%a")}
		case 1:
			return EnsureTopic{Name: pick("own", "%DLQ%a", "%TXN%b", "%DLQ%", "a"), Shard: ShardID(num("on", 0, 3))}
		}
		return DeleteGroup{Name: pick("group", "a", "b", "c")}
	}
	if k, ok := s.Keys().Get(KeyNext); ok {
		return UseKey{ID: k.ID}
	}
	return RotateKey{Key: Secret{9}}
}

// Whatever is applied: the invariants hold, a refusal changes nothing, a copy stays as it was, a
// restored snapshot goes on in the same way, ids are never used twice, epochs and set versions only
// grow, and a topic's queues never get fewer.
func TestAnyCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		s.Apply(1, Init{Cluster: "c0", Key: Secret{1}})
		s.Apply(2, RegisterReplica{Shard: "s1", Replica: 1, UUID: UUID{1, 1, 0}, Address: "127.0.0.1:1"})
		seenTopics, seenGroups := map[TopicID]Version{}, map[GroupID]Version{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			c := drawCommand(t, s)
			b, err := EncodeCommand(c, testRelease)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := DecodeCommand(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c, decoded); d != "" {
				t.Fatal(d)
			}
			before, beforeBytes := s.Clone(), snapshotOf(t, s)
			twin, err := ReadSnapshot(bytes.NewReader(beforeBytes))
			if err != nil {
				t.Fatal(err)
			}
			index := s.Version() + Version(rapid.IntRange(1, 3).Draw(t, "gap"))
			r, _ := s.Apply(index, decoded)
			twin.Apply(index, decoded)
			if err := s.Check(); err != nil {
				t.Fatalf("%T %+v: %v", c, c, err)
			}
			if mqerr.Is(r.Err, mqerr.Internal) {
				t.Fatal(r.Err)
			}
			after := snapshotOf(t, s)
			if !bytes.Equal(after, snapshotOf(t, twin)) {
				t.Fatalf("a restored state went another way at %T", c)
			}
			if !bytes.Equal(beforeBytes, snapshotOf(t, before)) {
				t.Fatalf("%T changed a copy", c)
			}
			if r.Err != nil {
				before.version = s.version
				if !bytes.Equal(after, snapshotOf(t, before)) {
					t.Fatalf("the refused %T changed something", c)
				}
			}
			for id, h := range before.shards {
				now := s.Shard(id)
				if _, deletes := c.(DeleteShard); deletes && now == nil && r.Err == nil {
					if e := s.ended[h.Name]; e.Epoch != h.Epoch || e.SetVersion != h.SetVersion || h.Master != 0 {
						t.Fatalf("%+v became %+v", h, e)
					}
					continue
				}
				if now == nil || now.Epoch < h.Epoch || now.SetVersion < h.SetVersion {
					t.Fatalf("shard went back: %+v to %+v", h, now)
				}
				if now.Master != 0 && now.Epoch == h.Epoch && h.Master != 0 && now.MasterInc != h.MasterInc {
					t.Fatalf("one epoch, two masters: %+v, %+v", h, now)
				}
				checkComplete(t, c, h, now)
			}
			for id, was := range before.topics {
				if now := s.topics[id]; now != nil {
					for _, p := range was.Placements {
						if now.On(p.Shard) < p.Queues {
							t.Fatalf("queues vanished: %+v to %+v", was, now)
						}
					}
				}
			}
			for id, x := range s.topics {
				if c, ok := seenTopics[id]; ok && c != x.Created {
					t.Fatalf("topic id %d was used twice", id)
				}
				seenTopics[id] = x.Created
			}
			for id, x := range s.groups {
				if c, ok := seenGroups[id]; ok && c != x.Created {
					t.Fatalf("group id %d was used twice", id)
				}
				seenGroups[id] = x.Created
			}
		}
	})
}

// checkComplete looks at what a command has made of those who have everything that is acknowledged: nobody
// comes to them but by the master's proposal, and by an operator's order that is counted.
func checkComplete(t *rapid.T, c Command, h, now *Shard) {
	for _, id := range slices.Concat(now.Set, now.ELR) {
		was := slices.Contains(h.Set, id) || slices.Contains(h.ELR, id)
		_, proposed := c.(AlterS)
		if !was && !proposed && now.DataLoss != h.DataLoss+1 {
			t.Fatalf("%T let replica %d in: %+v to %+v", c, id, h, now)
		}
	}
	if e, ok := c.(Enroll); ok && e.Shard == h.Name && now != h && len(h.Replicas) > 1 && (e.Damaged || h.Commit == Memory && !e.Clean) {
		if slices.Contains(now.Set, e.Replica) || slices.Contains(now.ELR, e.Replica) {
			t.Fatalf("I14: %+v is still there: %+v", e, now)
		}
	}
	if now.DataLoss < h.DataLoss {
		t.Fatalf("losses are forgotten: %+v to %+v", h, now)
	}
}

// Every shard has a queue before any has two, and shares differ by one at most.
func TestPlacementIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, queues := rapid.IntRange(1, 9).Draw(t, "shards"), rapid.IntRange(1, 40).Draw(t, "queues")
		name := rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "name")
		shards := make([]*Shard, n)
		for i := range shards {
			shards[i] = &Shard{ID: ShardID(i + 1)}
		}
		p := place(name, nil, queues, shards)
		total := 0
		for _, x := range p {
			total += x.Queues
			if x.Queues < queues/n || x.Queues > (queues+n-1)/n {
				t.Fatalf("%v", p)
			}
		}
		if total != queues || len(p) != min(n, queues) {
			t.Fatalf("%v", p)
		}
	})
}

// What a newer release wrote is refused with its name; it is never skipped.
func TestNewerFormats(t *testing.T) {
	for _, text := range []string{
		`{"v":2,"release":"9.9.9","op":"init","command":{}}`,
		`{"v":1,"release":"9.9.9","op":"fly","command":{}}`,
		`{"v":1,"release":"9.9.9","op":"delete_topic","command":{"name":"a","softly":true}}`,
	} {
		_, err := DecodeCommand([]byte(text))
		if !mqerr.Is(err, mqerr.Unsupported) || !bytes.Contains([]byte(err.Error()), []byte(`run release "9.9.9" or a later one`)) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := DecodeCommand([]byte("\x00")); !mqerr.Is(err, mqerr.Corrupt) {
		t.Errorf("garbage: %v", err)
	}
	text := `{"format":"perigee controller state","v":2,"release":"9.9.9"}` + "\n"
	if _, err := ReadSnapshot(bytes.NewReader([]byte(text))); !mqerr.Is(err, mqerr.Unsupported) {
		t.Errorf("snapshot: %v", err)
	}
	whole := snapshotOf(t, fullState(t))
	for cut := range whole {
		if cut == len(whole)-1 {
			continue // only the last line feed is missing
		}
		if _, err := ReadSnapshot(bytes.NewReader(whole[:cut])); err == nil {
			t.Fatalf("a snapshot cut at %d was accepted", cut)
		}
	}
}

// limitsOf draws limits, most of them possible ones.
func limitsOf(t *rapid.T) LimitsChange {
	one := func(label string, values ...int64) *int64 {
		v := rapid.SampledFrom(append(values, -2, 0, -3)).Draw(t, label)
		if v == -3 {
			return nil
		}
		return &v
	}
	if rapid.IntRange(0, 3).Draw(t, "limits") > 0 {
		return LimitsChange{}
	}
	return LimitsChange{
		one("max delay", 1, 1000), one("check after", 1), one("check interval", CheckIntervalMinMS), one("check limit", 1, CheckLimitMax),
		one("window", WindowOff, DuplicatesMinMS), one("lite expiry", LiteExpiryMinMS),
	}
}

func fullState(t interface{ Fatalf(string, ...any) }) *State {
	s := New()
	for i, c := range []Command{
		Init{Cluster: "c0", Key: Secret{1}},
		RegisterReplica{Shard: "s1", Replica: 1, UUID: UUID{1}, Address: "127.0.0.1:1"},
		Elect{Shard: 1, Winner: 1, Inc: 2},
		PutTopic{Name: "t"},
		PutGroup{Name: "g"},
		RotateKey{Key: Secret{2}},
		PutController{Controller{ID: "c1", UUID: UUID{1}, Address: "127.0.0.1:9876"}},
		PutController{Controller{ID: "c2", UUID: UUID{2}}},
		RemoveController{ID: "c2"},
		Enroll{RegisterReplica: RegisterReplica{Shard: "s2", Replica: 1, UUID: UUID{2}, Address: "127.0.0.1:1"}, MinISR: 2, Commit: Memory},
		Enroll{RegisterReplica: RegisterReplica{Shard: "s2", Replica: 2, UUID: UUID{3}, Address: "127.0.0.1:1"}},
		UncleanElect{Shard: 2, Winner: 2, Inc: 11, Token: "t"},
		RemoveReplica{Shard: 2, Replica: 1, Inc: 10},
		SetShard{Shard: 2, MinISR: new(1)},
		RemoveReplica{Shard: 2, Replica: 1, Inc: 10},
		RaiseGeneration{},
		Enroll{RegisterReplica: RegisterReplica{Shard: "s3", Replica: 1, UUID: UUID{4}, Address: "127.0.0.1:1"}},
		DeleteShard{Shard: 3},
	} {
		if r, _ := s.Apply(Version(i+1), c); (r.Err != nil) != (i == 12) { // too few would be left
			t.Fatalf("%T: %v", c, r.Err)
		}
	}
	return s
}

func FuzzDecodeCommand(f *testing.F) {
	n := 3
	for _, c := range []Command{
		Init{Cluster: "c0"},
		RegisterReplica{Shard: "s", UUID: UUID{1}},
		Enroll{RegisterReplica: RegisterReplica{Shard: "s", UUID: UUID{1}}, MinISR: 2},
		UncleanElect{Shard: 1, Token: "t"},
		SetShard{Shard: 1, MinISR: &n},
		RemoveReplica{Shard: 1, Replica: 1},
		DeleteShard{Shard: 1},
		RaiseGeneration{},
		Elect{Shard: 1},
		Resign{},
		AlterS{Set: []Member{{1, 2}}},
		SetApplied{},
		PutTopic{Name: "t", Limits: *Limits{MaxDelayMS: 1, DuplicatesMS: WindowOff}.set()},
		DeleteTopic{},
		EnsureTopic{Name: "%DLQ%g", Shard: 1},
		PutGroup{Name: "g", MaxAttempts: &n, BackoffMS: []int64{1}},
		DeleteGroup{},
		PutGroup{Name: "g", Exponential: &Growth{InitialMS: 1, MaxMS: 2, Multiplier: 1500}},
		RotateKey{},
		UseKey{ID: 1},
		PutController{Controller{ID: "c1", UUID: UUID{1}, Raft: "127.0.0.1:9877"}},
		RemoveController{ID: "c1"},
	} {
		b, err := EncodeCommand(c, testRelease)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			return
		}
		again, err := EncodeCommand(c, testRelease)
		if err != nil {
			t.Fatal(err)
		}
		c2, err := DecodeCommand(again)
		if err != nil {
			t.Fatal(err)
		}
		if again2, _ := EncodeCommand(c2, testRelease); !bytes.Equal(again, again2) {
			t.Fatalf("%s and %s", again, again2)
		}
		s := fullState(t)
		s.Apply(100, c) // no panic, whatever it says
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzReadSnapshot(f *testing.F) {
	f.Add(snapshotOf(f, New()))
	f.Add(snapshotOf(f, fullState(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadSnapshot(bytes.NewReader(b))
		if err != nil {
			return
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		out := snapshotOf(t, s)
		again, err := ReadSnapshot(bytes.NewReader(out))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out, snapshotOf(t, again)) {
			t.Fatal("not the same after a second reading")
		}
	})
}
