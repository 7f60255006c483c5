package state

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

const testRelease = "0.1.0-test"

// The scenarios: every command is one step of a state, and prints its result, its events, and what
// the state then knows of the thing concerned.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := New()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := step(t, &s, d)
			if err := s.Check(); err != nil {
				d.Fatalf(t, "invariant: %v", err)
			}
			return out
		})
	})
}

func step(t *testing.T, s **State, d *datadriven.TestData) string {
	switch d.Cmd {
	case "reload": // a snapshot and its restoration change nothing
		var a, b bytes.Buffer
		if err := (*s).WriteSnapshot(&a, testRelease); err != nil {
			d.Fatalf(t, "%v", err)
		}
		text := a.String()
		restored, err := ReadSnapshot(&a)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		if err := restored.WriteSnapshot(&b, testRelease); err != nil || b.String() != text {
			d.Fatalf(t, "restored state differs (%v):\n%s\n%s", err, text, b.String())
		}
		*s = restored
		return "ok\n"
	case "show":
		var b strings.Builder
		if err := (*s).WriteSnapshot(&b, testRelease); err != nil {
			d.Fatalf(t, "%v", err)
		}
		return b.String()
	}
	cmd := commandOf(t, d)
	encoded, err := EncodeCommand(cmd, testRelease)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	if cmd, err = DecodeCommand(encoded); err != nil { // what is applied is what was stored
		d.Fatalf(t, "%v", err)
	}
	r, events := (*s).Apply((*s).Version()+1, cmd)
	return describe(r, events)
}

func commandOf(t *testing.T, d *datadriven.TestData) Command {
	a := args{t, d}
	switch d.Cmd {
	case "init":
		return Init{Cluster: a.str("cluster"), Key: Secret{byte(a.num("key"))}, NowMS: a.num("now")}
	case "register":
		return RegisterReplica{
			Cluster: a.str("cluster"), Shard: a.str("shard"), Replica: ReplicaID(a.num("id")), UUID: UUID{byte(a.num("uuid"))},
			Address: a.str("addr"), Last: Incarnation(a.num("last")), Clean: d.HasArg("clean"), MaxEpoch: Epoch(a.num("max-epoch")),
		}
	case "enroll":
		return Enroll{
			RegisterReplica: RegisterReplica{
				Shard: a.str("shard"), Replica: ReplicaID(a.num("id")), UUID: UUID{byte(a.num("uuid"))}, Address: "127.0.0.1:1",
				Last: Incarnation(a.num("last")), Clean: d.HasArg("clean"), MaxEpoch: Epoch(a.num("max-epoch")),
			},
			Damaged: d.HasArg("damaged"), Learner: d.HasArg("learner"), MinISR: int(a.num("min-isr")), Commit: commits[a.str("mode")],
		}
	case "unclean-elect":
		return UncleanElect{Shard: ShardID(a.num("shard")), Epoch: Epoch(a.num("epoch")), Winner: ReplicaID(a.num("winner")), Inc: Incarnation(a.num("inc")), Token: a.str("token")}
	case "set-shard":
		c := SetShard{Shard: ShardID(a.num("shard"))}
		if d.HasArg("min-isr") {
			c.MinISR = new(int(a.num("min-isr")))
		}
		if d.HasArg("mode") {
			c.Commit = new(commits[a.str("mode")])
		}
		return c
	case "remove-replica":
		return RemoveReplica{Shard: ShardID(a.num("shard")), Replica: ReplicaID(a.num("id")), Inc: Incarnation(a.num("inc"))}
	case "delete-shard":
		return DeleteShard{Shard: ShardID(a.num("shard"))}
	case "raise-generation":
		return RaiseGeneration{From: uint16(a.num("from"))}
	case "elect":
		return Elect{Shard: ShardID(a.num("shard")), Epoch: Epoch(a.num("epoch")), Winner: ReplicaID(a.num("winner")), Inc: Incarnation(a.num("inc"))}
	case "resign":
		return Resign{Shard: ShardID(a.num("shard")), Epoch: Epoch(a.num("epoch")), Replica: ReplicaID(a.num("id")), Inc: Incarnation(a.num("inc"))}
	case "applied":
		return SetApplied{Shard: ShardID(a.num("shard")), Epoch: Epoch(a.num("epoch")), Replica: ReplicaID(a.num("id")), Inc: Incarnation(a.num("inc")), Applied: Version(a.num("to"))}
	case "alter-s":
		c := AlterS{Shard: ShardID(a.num("shard")), Epoch: Epoch(a.num("epoch")), Master: Member{ReplicaID(a.num("id")), Incarnation(a.num("inc"))}, SetVersion: uint64(a.num("v"))}
		for m := range strings.FieldsSeq(strings.ReplaceAll(d.Input, ",", " ")) {
			var id, inc int
			if _, err := fmt.Sscanf(m, "%d@%d", &id, &inc); err != nil {
				d.Fatalf(t, "%v", err)
			}
			c.Set = append(c.Set, Member{ReplicaID(id), Incarnation(inc)})
		}
		return c
	case "put-topic":
		return PutTopic{
			Name: a.name(), Type: TopicType(max(slices.Index(typeNames[:], a.str("type")), 0)), Queues: int(a.num("queues")),
			Flush: Flush(a.num("flush")), Mode: Mode(a.num("mode")), NowMS: a.num("now"), Limits: a.limits(), Most: int(a.num("most")),
		}
	case "put-group":
		c := PutGroup{Name: a.name(), From: From(a.num("from")), FromMS: a.num("from-ms"), Mode: Mode(a.num("mode")), NowMS: a.num("now"), Most: int(a.num("most"))}
		if d.HasArg("ordered") {
			v := a.str("ordered") == "true"
			c.Ordered = &v
		}
		if d.HasArg("attempts") {
			v := int(a.num("attempts"))
			c.MaxAttempts = &v
		}
		if d.HasArg("list") {
			for ms := range strings.SplitSeq(a.str("list"), "-") {
				n, _ := strconv.ParseInt(ms, 10, 64)
				c.BackoffMS = append(c.BackoffMS, n)
			}
		}
		if d.HasArg("initial") {
			c.Exponential = &Growth{InitialMS: a.num("initial"), MaxMS: a.num("max"), Multiplier: int(a.num("multiplier"))}
		}
		if d.HasArg("lite") {
			v := a.str("lite")
			c.LiteTopic = &v
		}
		return c
	case "ensure-topic":
		return EnsureTopic{Name: a.name(), Shard: ShardID(a.num("shard")), NowMS: a.num("now")}
	case "grow-topic":
		return GrowTopic{
			Name: a.name(), Step: GrowStep(slices.Index([]string{"begin", "finish", "abort"}, a.str("step"))), Queues: int(a.num("queues")),
			Began: Version(a.num("began")), UntilMS: a.num("until"),
		}
	case "delete-topic":
		return DeleteTopic{Name: a.name()}
	case "delete-group":
		return DeleteGroup{Name: a.name()}
	case "rotate-key":
		return RotateKey{Key: Secret{byte(a.num("key"))}, NowMS: a.num("now")}
	case "use-key":
		return UseKey{ID: uint8(a.num("id"))}
	}
	d.Fatalf(t, "unknown command %q", d.Cmd)
	return nil
}

var commits = map[string]Commit{"": Durable, "durable": Durable, "memory": Memory, "odd": 2}

type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) str(key string) string {
	var v string
	a.d.MaybeScanArgs(a.t, key, &v)
	return v
}

func (a args) num(key string) int64 {
	var v int64
	a.d.MaybeScanArgs(a.t, key, &v)
	return v
}

func (a args) limits() LimitsChange {
	one := func(key string) *int64 {
		if !a.d.HasArg(key) {
			return nil
		}
		return new(a.num(key))
	}
	return LimitsChange{one("max-delay"), one("check-after"), one("check-interval"), one("check-limit"), one("window"), one("lite-expiry")}
}

// name is the first line of the input, so that any character can be in it.
func (a args) name() string { return strings.TrimSpace(a.d.Input) }

func describe(r Result, events []Event) string {
	var b strings.Builder
	if r.Err != nil {
		fmt.Fprintf(&b, "%v: %v\n", mqerr.KindOf(r.Err), r.Err)
	} else {
		fmt.Fprintf(&b, "ok%s%s\n", when(r.Created, " created"), when(r.Changed, " changed"))
	}
	for _, e := range events {
		switch e := e.(type) {
		case TopicPut:
			fmt.Fprintf(&b, "topic %d v%d %v %v flush=%d", e.Topic.ID, e.Topic.Version, e.Topic.Type, e.Topic.Placements, e.Topic.Flush)
			if e.Topic.Limits != (Limits{}) {
				fmt.Fprintf(&b, " limits=%+v", e.Topic.Limits)
			}
			if e.Topic.Layout > 0 {
				fmt.Fprintf(&b, " layout=%d", e.Topic.Layout)
			}
			if e.Topic.Growing != nil {
				fmt.Fprintf(&b, " growing=%+v", *e.Topic.Growing)
			}
			b.WriteByte('\n')
		case TopicDeleted:
			fmt.Fprintf(&b, "topic %d deleted v%d\n", e.Topic.ID, e.Version)
		case GroupPut:
			g := e.Group
			fmt.Fprintf(&b, "group %d v%d ordered=%v attempts=%d from=%d/%d lite=%q", g.ID, g.Version, g.Ordered, g.MaxAttempts, g.From, g.FromMS, g.LiteTopic)
			if len(g.BackoffMS) > 0 {
				fmt.Fprintf(&b, " retry=%v", g.BackoffMS)
			}
			if g.Exponential != nil {
				fmt.Fprintf(&b, " retry=%+v", *g.Exponential)
			}
			b.WriteByte('\n')
		case GroupDeleted:
			fmt.Fprintf(&b, "group %d deleted v%d\n", e.Group.ID, e.Version)
		case ShardChanged:
			h := e.Shard
			fmt.Fprintf(&b, "shard %d epoch=%d master=%d/%d set=%v v=%d elr=%v applied=%d%s\n", h.ID, h.Epoch, h.Master, h.MasterInc, h.Set, h.SetVersion, h.ELR, h.Applied, when(e.Progress, " progress")+ruled(h))
			for _, r := range h.Replicas {
				fmt.Fprintf(&b, "  replica %d inc=%d %s%s\n", r.ID, r.Incarnation, r.Address, when(r.Unclean, " unclean")+when(r.Learner, " learner"))
			}
		case ShardDeleted:
			fmt.Fprintf(&b, "shard %d deleted\n", e.Shard.ID)
		case KeysChanged:
			for _, k := range e.Keys {
				fmt.Fprintf(&b, "key %d %s %x\n", k.ID, k.Role, k.Secret[:1])
			}
		}
	}
	return b.String()
}

// ruled is what of a shard differs from one that a single broker founded.
func ruled(h *Shard) (text string) {
	if h.MinISR > 1 || h.Commit > 0 {
		text = fmt.Sprintf(" min-isr=%d %v", h.MinISR, h.Commit)
	}
	if h.Loss != nil {
		text += fmt.Sprintf(" losses=%d %+v", h.DataLoss, *h.Loss)
	}
	return text
}

func when(is bool, s string) string {
	if is {
		return s
	}
	return ""
}
