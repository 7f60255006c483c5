package raft

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type probe struct {
	*Node
	leading chan bool

	mu       sync.Mutex
	events   int
	restored int
}

func open(t *testing.T, o Options) (*probe, error) {
	t.Helper()
	p := &probe{leading: make(chan bool, 16)}
	if o.ID == "" {
		o.ID = "c1"
	}
	o.Release = "0.1.0-test"
	o.Log = slog.New(slog.DiscardHandler)
	o.Leading = func(v bool) { p.leading <- v }
	o.Applied = func(_ state.Version, e []state.Event) { p.mu.Lock(); p.events += len(e); p.mu.Unlock() }
	o.Restored = func(*state.State) { p.mu.Lock(); p.restored++; p.mu.Unlock() }
	var err error
	p.Node, err = Open(o)
	return p, err
}

func mustOpen(t *testing.T, o Options) *probe {
	t.Helper()
	p, err := open(t, o)
	if err != nil {
		t.Fatal(err)
	}
	p.await(t, true)
	return p
}

func (p *probe) await(t *testing.T, want bool) {
	t.Helper()
	select {
	case got := <-p.leading:
		if got != want {
			t.Fatalf("leading %v, want %v", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("not told leading=%v", want)
	}
}

func (p *probe) stop(t *testing.T) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p.await(t, false)
}

func (p *probe) put(t *testing.T, name string) *state.Group {
	t.Helper()
	r, err := p.Apply(state.PutGroup{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return r.Group
}

func TestLoneNode(t *testing.T) {
	dir := t.TempDir()
	begin := time.Now()
	n := mustOpen(t, Options{Dir: dir})
	took := time.Since(begin)
	t.Logf("leader after %v", took)
	if took > time.Second { // 100 ms on a quiet machine
		t.Errorf("leader after %v", took)
	}
	if _, err := open(t, Options{Dir: dir}); !mqerr.Is(err, mqerr.Exists) {
		t.Errorf("second process: %v", err)
	}
	a := n.put(t, "a")
	if _, err := n.Apply(state.PutTopic{Name: "t"}); !mqerr.Is(err, mqerr.Unavailable) {
		t.Errorf("refusal: %v", err)
	}
	if n.Leader() != "c1" {
		t.Errorf("leader %q", n.Leader())
	}
	n.stop(t)
	if _, err := n.Apply(state.PutGroup{Name: "late"}); !mqerr.Is(err, mqerr.Draining) {
		t.Errorf("after the stop: %v", err)
	}

	// The log alone, then a snapshot with a log behind it, and an address where there was none.
	n = mustOpen(t, Options{Dir: dir})
	if n.events != 1 || n.restored != 0 {
		t.Errorf("%d events, %d restored", n.events, n.restored)
	}
	b := n.put(t, "b")
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	c := n.put(t, "c")
	n.stop(t)
	n = mustOpen(t, Options{Dir: dir, Addr: "127.0.0.1:0"})
	if n.restored != 1 {
		t.Errorf("%d restored", n.restored)
	}
	n.View(func(s *state.State) {
		for i, want := range []*state.Group{a, b, c} {
			if got := s.Group(want.Name); got == nil || got.ID != want.ID || got.Version != want.Version || int(got.ID) != i+1 {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	})
	f := n.raft.GetConfiguration()
	if f.Error() != nil || !strings.HasPrefix(string(f.Configuration().Servers[0].Address), "127.0.0.1:") {
		t.Errorf("address: %+v", f.Configuration())
	}
	if d := n.put(t, "d"); d.ID != 4 {
		t.Errorf("id %d", d.ID)
	}
	n.stop(t)
}

func TestRefusedDirectories(t *testing.T) {
	foreign := t.TempDir()
	write(t, foreign, "notes.txt", "x")
	broker := t.TempDir()
	write(t, broker, "VERSION", `{"format":"perigee broker","v":1}`)
	newer := t.TempDir()
	write(t, newer, "VERSION", `{"format":"perigee controller","v":2,"release":"9.9.9","id":"c1"}`)
	damaged := t.TempDir()
	write(t, damaged, "VERSION", `{`)
	lost := t.TempDir()
	n := mustOpen(t, Options{Dir: lost})
	n.stop(t)
	if err := os.Remove(filepath.Join(lost, "raft.db")); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	n = mustOpen(t, Options{Dir: other})
	n.stop(t)
	for _, c := range []struct {
		dir, id, want string
		kind          mqerr.Kind
	}{
		{foreign, "c1", "holds files that are no controller's (notes.txt)", mqerr.Invalid},
		{broker, "c1", `one of "perigee broker"`, mqerr.Invalid},
		{newer, "c1", `run release "9.9.9" or a later one`, mqerr.Unsupported},
		{damaged, "c1", "does not say what", mqerr.Corrupt},
		{lost, "c1", "has lost its raft.db", mqerr.Corrupt},
		{other, "c2", `belongs to controller "c1"`, mqerr.Invalid},
	} {
		_, err := open(t, Options{Dir: c.dir, ID: c.id})
		if !mqerr.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.want, err)
		}
	}
	if names, _ := os.ReadDir(foreign); len(names) != 1 {
		t.Errorf("something was written to a foreign directory: %v", names)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// An entry that a newer release wrote stops the node; it does not go on without it, neither at once
// nor after a start.
func TestNewerEntry(t *testing.T) {
	dir := t.TempDir()
	n := mustOpen(t, Options{Dir: dir})
	n.put(t, "a")
	f := n.raft.Apply([]byte(`{"v":1,"release":"9.9.9","op":"fly","command":{}}`), time.Second)
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if !mqerr.Is(err, mqerr.Unsupported) || !strings.Contains(fmt.Sprint(err), `"9.9.9"`) {
			t.Errorf("%v", err)
		}
	}
	check(<-n.Failed())
	_, err := n.Apply(state.PutGroup{Name: "b"})
	check(err)
	if n.Snapshot() == nil {
		t.Error("a snapshot was made")
	}
	n.stop(t)

	p, err := open(t, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.Failed():
		check(err)
	case <-time.After(10 * time.Second):
		t.Error("the node did not notice")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(p.leading) != 0 {
		t.Error("it led")
	}
}

// The older snapshot and the log stand in for a damaged one.
//
//fault:damage the newest snapshot of a controller is damaged => the older one and the log stand in for it
func TestDamagedSnapshot(t *testing.T) {
	dir := t.TempDir()
	n := mustOpen(t, Options{Dir: dir})
	for i := range 3 {
		n.put(t, fmt.Sprint("g", i))
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	n.stop(t)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if err != nil || len(files) != snapshotsKept {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "g2") {
			write(t, filepath.Dir(f), "state.bin", string(b[:len(b)/2]))
		}
	}
	n = mustOpen(t, Options{Dir: dir})
	n.View(func(s *state.State) {
		if _, groups, _ := s.Len(); groups != 3 {
			t.Errorf("%d groups", groups)
		}
	})
	n.stop(t)
}

// A snapshot of a newer release is an error, not a reason to take an older one.
func TestNewerSnapshot(t *testing.T) {
	var failed error
	m := &machine{state: state.New(), fail: func(err error) { failed = err }}
	text := `{"format":"perigee controller state","v":2,"release":"9.9.9"}`
	if err := m.Restore(io.NopCloser(strings.NewReader(text))); !mqerr.Is(err, mqerr.Unsupported) {
		t.Errorf("%v", err)
	}
	if failed == nil || m.err == nil {
		t.Error("it went on")
	}
}

// A store that fails ends the node.
//
//fault:storage the store of a controller fails => the controller ends
func TestStorageFailureIsFinal(t *testing.T) {
	n := mustOpen(t, Options{Dir: t.TempDir()})
	n.store.check(fmt.Errorf("no space left on device")) //nolint:errcheck // the report is what counts
	if err := <-n.Failed(); !mqerr.Is(err, mqerr.Corrupt) {
		t.Errorf("%v", err)
	}
	n.stop(t)
}
