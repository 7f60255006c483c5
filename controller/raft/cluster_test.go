package raft

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/testport"
)

const patience = 30 * time.Second

// freeAddr is a loopback address on which nobody listened a moment ago, below those of clients.
func freeAddr(t *testing.T) string {
	t.Helper()
	return testport.Addr(t)
}

// trio is three nodes that found a cluster together.
type trio struct {
	t       *testing.T
	dir     string
	members []Member
	nodes   map[string]*probe
	entries uint64
}

func newTrio(t *testing.T) *trio {
	t.Helper()
	k := &trio{t: t, dir: t.TempDir(), nodes: map[string]*probe{}}
	for i := range 3 {
		k.members = append(k.members, Member{fmt.Sprintf("c%d", i+1), freeAddr(t)})
	}
	t.Cleanup(func() {
		for _, n := range k.nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return k
}

func (k *trio) start(id string, o Options) *probe {
	k.t.Helper()
	o.ID, o.SnapshotEntries = id, k.entries
	if o.Dir == "" {
		o.Dir = filepath.Join(k.dir, id)
	}
	for _, m := range k.members {
		if m.ID == id && o.Addr == "" {
			o.Addr = m.Addr
		}
	}
	n, err := open(k.t, o)
	if err != nil {
		k.t.Fatal(err)
	}
	k.nodes[id] = n
	return n
}

func (k *trio) startAll() *trio {
	k.t.Helper()
	for _, m := range k.members {
		k.start(m.ID, Options{Members: k.members})
	}
	k.announce()
	return k
}

func (k *trio) end(id string) {
	k.t.Helper()
	if err := k.nodes[id].Close(); err != nil {
		k.t.Fatal(err)
	}
	delete(k.nodes, id)
}

// leader is the node that can apply a command now.
func (k *trio) leader() *probe {
	k.t.Helper()
	var led *probe
	k.until("a leader", func() bool {
		for _, n := range k.nodes {
			if _, err := n.Apply(state.RemoveController{ID: "nobody"}); err == nil {
				led = n
				return true
			}
		}
		return false
	})
	return led
}

// announce gives the cluster its id and every node its place in the table, as a controller does.
func (k *trio) announce() {
	k.t.Helper()
	l := k.leader()
	commands := []state.Command{state.Init{Cluster: "test", Key: state.Secret{1}}}
	for id, n := range k.nodes {
		commands = append(commands, state.PutController{Controller: state.Controller{ID: id, UUID: n.UUID(), Address: "127.0.0.1:1"}})
	}
	for _, c := range commands {
		if _, err := l.Apply(c); err != nil {
			k.t.Fatal(err)
		}
	}
	k.settled(l)
}

// settled waits until every node has applied what the leader has.
func (k *trio) settled(l *probe) {
	k.t.Helper()
	k.until("all nodes are equal", func() bool {
		want := dump(l)
		for _, n := range k.nodes {
			if !bytes.Equal(dump(n), want) {
				return false
			}
		}
		return true
	})
}

func dump(n *probe) []byte {
	var b bytes.Buffer
	n.View(func(s *state.State) { _ = s.WriteSnapshot(&b, "test") })
	return b.Bytes()
}

func (k *trio) until(what string, yes func() bool) {
	k.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(patience); !yes(); <-tick.C {
		if time.Now().After(limit) {
			k.t.Fatalf("never: %s", what)
		}
	}
}

func (k *trio) other(than *probe) *probe {
	for _, n := range k.nodes {
		if n != than {
			return n
		}
	}
	return nil
}

func TestThreeNodes(t *testing.T) {
	k := newTrio(t).startAll()
	l := k.leader()
	f := k.other(l)
	if _, err := f.Apply(state.PutGroup{Name: "x"}); !mqerr.Is(err, mqerr.NotLeader) {
		t.Errorf("a follower: %v", err)
	}
	if f.Leader() != l.o.ID || f.Progress().State != "Follower" || !f.Progress().Known || l.Progress().Known {
		t.Errorf("%q leads, %+v, %+v", f.Leader(), f.Progress(), l.Progress())
	}
	if err := l.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if err := f.Verify(t.Context()); !mqerr.Is(err, mqerr.NotLeader) {
		t.Errorf("a follower: %v", err)
	}

	// The lead goes where it is wanted.
	if err := l.Transfer(f.o.ID); err != nil {
		t.Fatal(err)
	}
	k.until("the other leads", func() bool { return f.Progress().State == "Leader" })
	if err := f.Transfer("nobody"); !mqerr.Is(err, mqerr.NotFound) {
		t.Errorf("%v", err)
	}

	// What was answered is there when the leader is gone, and the old one learns what it missed.
	f.put(t, "before")
	id := f.o.ID
	began := time.Now()
	k.end(id)
	l = k.leader()
	t.Logf("a new leader after %v", time.Since(began))
	after := l.put(t, "after")
	if after.ID != 2 {
		t.Errorf("id %d", after.ID)
	}
	k.until("the leader says who is away", func() bool { return l.Away() == 1 })
	k.start(id, Options{Members: []Member{{id, f.o.Addr}}}) // the list counts no more
	k.settled(l)
	k.until("nobody is away", func() bool { return l.Away() == 0 })
}

// Without a majority nothing is stored, and with it again everything goes on.
func TestNoMajority(t *testing.T) {
	k := newTrio(t).startAll()
	l := k.leader()
	for id := range map[string]bool{"c1": true, "c2": true, "c3": true} {
		if id != l.o.ID {
			k.end(id)
		}
	}
	k.until("the leader notices", func() bool { return l.Progress().State != "Leader" })
	if _, err := l.Apply(state.PutGroup{Name: "x"}); !mqerr.Is(err, mqerr.NotLeader) {
		t.Errorf("%v", err)
	}
	for _, m := range k.members {
		if m.ID != l.o.ID {
			k.start(m.ID, Options{})
			break
		}
	}
	k.leader().put(t, "x")
}

// A node that is too far behind for the log gets a snapshot.
func TestSnapshotForANodeThatIsBehind(t *testing.T) {
	k := newTrio(t)
	k.entries = 8
	k.startAll()
	l := k.leader()
	late := k.other(l).o.ID
	k.end(late)
	for i := range 8 * trailing * 2 {
		l.put(t, fmt.Sprint("g", i))
	}
	if err := l.Snapshot(); err != nil {
		t.Fatal(err)
	}
	n := k.start(late, Options{})
	k.settled(l)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.restored == 0 {
		t.Error("it got no snapshot")
	}
}

// A node alone becomes three, and one of them is replaced by another.
func TestGrowAndReplace(t *testing.T) {
	k := newTrio(t)
	one := k.start("c1", Options{})
	one.await(t, true)
	k.announce()
	one.put(t, "a")
	grow := func(l *probe, id, dir string) *probe {
		t.Helper()
		n := k.start(id, Options{Join: true, Dir: filepath.Join(k.dir, dir)})
		addr := n.o.Addr
		if got, member, err := l.Look(addr); got != id || member || err != nil {
			t.Fatalf("%s at %s: %q %v %v", id, addr, got, member, err)
		}
		if err := l.Learner(Member{id, addr}); err != nil {
			t.Fatal(err)
		}
		k.settled(l)
		if err := l.Voter(Member{id, addr}); err != nil {
			t.Fatal(err)
		}
		k.announceOne(l, n)
		return n
	}
	grow(one, "c2", "c2")
	three := grow(one, "c3", "c3")
	voters, err := one.Voters()
	if err != nil || len(voters) != 3 || !voters[2].Votes {
		t.Fatalf("%+v %v", voters, err)
	}

	// c3 loses its disk: nobody speaks to what comes back under its name.
	k.end("c3")
	if err := os.RemoveAll(filepath.Join(k.dir, "c3")); err != nil {
		t.Fatal(err)
	}
	k.start("c3", Options{Members: []Member{{"c1", k.members[0].Addr}, {"c3", k.members[2].Addr}}})
	if _, _, err := one.Look(k.members[2].Addr); !mqerr.Is(err, mqerr.Denied) {
		t.Errorf("an emptied directory: %v", err)
	}
	k.end("c3")
	if err := one.Remove("c3"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Apply(state.RemoveController{ID: "c3"}); err != nil {
		t.Fatal(err)
	}
	again := grow(one, "c3", "again")
	if again.UUID() == three.UUID() {
		t.Error("it has the old identity")
	}
	if err := one.Remove("c1"); !mqerr.Is(err, mqerr.Invalid) {
		t.Errorf("the leader itself: %v", err)
	}
}

func (k *trio) announceOne(l, n *probe) {
	k.t.Helper()
	if _, err := l.Apply(state.PutController{Controller: state.Controller{ID: n.o.ID, UUID: n.UUID(), Raft: n.o.Addr}}); err != nil {
		k.t.Fatal(err)
	}
	k.settled(l)
}

// A node that was removed while it was away ends when it comes back.
func TestRemovedNodeEnds(t *testing.T) {
	k := newTrio(t).startAll()
	l := k.leader()
	id := k.other(l).o.ID
	k.end(id)
	if err := l.Remove(id); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Apply(state.RemoveController{ID: id}); err != nil {
		t.Fatal(err)
	}
	n := k.start(id, Options{})
	select {
	case err := <-n.Failed():
		if !mqerr.Is(err, mqerr.Denied) || !strings.Contains(err.Error(), "was removed") {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
}

// Nodes of two clusters at each other's addresses do not mix.
func TestTwoClusters(t *testing.T) {
	k := newTrio(t).startAll()
	stranger, err := open(t, Options{Dir: t.TempDir(), ID: "c9", Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	stranger.await(t, true)
	if _, err := stranger.Apply(state.Init{Cluster: "other", Key: state.Secret{1}}); err != nil {
		t.Fatal(err)
	}
	_, _, err = stranger.Look(k.members[0].Addr)
	if !mqerr.Is(err, mqerr.Denied) || !strings.Contains(err.Error(), "belongs to cluster") {
		t.Errorf("%v", err)
	}
}

func TestIdentities(t *testing.T) {
	me := identity{UUID: state.UUID{1}, Cluster: "a", Founding: "f", Members: map[string]state.UUID{"c1": {1}, "c2": {2}}, Gone: []state.UUID{{7}}}
	young := identity{UUID: state.UUID{1}, Founding: "f"}
	joining := identity{UUID: state.UUID{1}}
	for _, c := range []struct {
		what string
		i    identity
		g    greeting
		kind mqerr.Kind // Internal: welcome
	}{
		{"a member", me, greeting{ID: "c2", UUID: state.UUID{2}, Cluster: "a", Founding: "f"}, 0},
		{"a member that does not know its cluster yet", me, greeting{ID: "c3", UUID: state.UUID{3}, Founding: "f"}, 0},
		{"one that joins", me, greeting{ID: "c3", UUID: state.UUID{3}}, 0},
		{"founders", young, greeting{ID: "c2", UUID: state.UUID{2}, Founding: "f"}, 0},
		{"a member of a cluster that was founded with another list", joining, greeting{ID: "c2", UUID: state.UUID{2}, Cluster: "a", Founding: "g"}, 0},
		{"this id", me, greeting{ID: "c1", UUID: state.UUID{5}, Cluster: "a"}, mqerr.Invalid},
		{"another cluster", me, greeting{ID: "c2", UUID: state.UUID{2}, Cluster: "b", Founding: "f"}, mqerr.Denied},
		{"another founding", me, greeting{ID: "c3", UUID: state.UUID{3}, Founding: "g"}, mqerr.Denied},
		{"another founding, both young", young, greeting{ID: "c3", UUID: state.UUID{3}, Founding: "g"}, mqerr.Denied},
		{"a removed directory", me, greeting{ID: "c3", UUID: state.UUID{7}, Cluster: "a", Founding: "f"}, mqerr.Denied},
		{"an emptied directory", me, greeting{ID: "c2", UUID: state.UUID{9}, Founding: "f"}, mqerr.Denied},
	} {
		err := c.i.judge("c1", c.g)
		if (err == nil) != (c.kind == 0) || err != nil && !mqerr.Is(err, c.kind) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	var gone goneError
	if err := me.judge("c1", greeting{ID: "c3", UUID: state.UUID{7}, Cluster: "a"}); !errors.As(err, &gone) {
		t.Errorf("%v", err)
	}
}

func TestRefusedLists(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Members: []Member{{"c1", "h:1"}}, Join: true, Addr: "127.0.0.1:0"}, "either founds"},
		{Options{Join: true}, "needs a raft address"},
		{Options{Members: []Member{{"c2", "h:1"}}, Addr: "127.0.0.1:0"}, "none of the initial members"},
		{Options{Members: []Member{{"c1", "h:1"}, {"c2", "h:1"}}, Addr: "127.0.0.1:0"}, "twice"},
		{Options{Members: []Member{{"c1", "h:1"}, {"c1", "h:2"}}, Addr: "127.0.0.1:0"}, "twice"},
		{Options{Election: time.Millisecond}, "use 50ms or more"},
	} {
		c.o.Dir = t.TempDir()
		if _, err := open(t, c.o); !mqerr.Is(err, mqerr.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
}

func FuzzGreeting(f *testing.F) {
	var b bytes.Buffer
	_ = writeGreeting(&b, greeting{Release: "1", Cluster: "c", ID: "c1", UUID: state.UUID{1}, Refused: "no", Gone: true})
	f.Add(b.Bytes())
	f.Add([]byte(greetingMagic + "\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := readGreeting(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := writeGreeting(&out, g); err != nil {
			t.Fatal(err)
		}
		again, err := readGreeting(&out)
		if out.Len() == 0 && (err != nil || again != g) {
			t.Fatalf("%+v, %+v, %v", g, again, err)
		}
		_ = identity{}.judge("c1", g)
	})
}
