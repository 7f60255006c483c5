package blackbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perigee-mq/perigee/internal/testbin"
)

// refuses starts a process that must end by itself, with an exit code that is not 0 and a text that has
// these words in it.
func refuses(t *testing.T, args []string, words ...string) {
	t.Helper()
	bin, err := testbin.Path()
	if err != nil {
		t.Fatal(err)
	}
	p, err := launch(strings.Join(args, " "), bin, args...)
	if err != nil {
		t.Fatal(err)
	}
	code, err := p.over(20 * time.Second)
	if err != nil {
		_ = p.kill()
		t.Fatalf("%v\n%s", err, p.log())
	}
	_, said, ok := strings.Cut(p.log(), "perigee: ")
	if !ok || code == 0 {
		t.Errorf("%s: exit code %d, said\n%s", p.name, code, p.log())
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("%s says %q, without %q", p.name, said, w)
		}
	}
	if faults := p.complaints(); len(faults) > 0 {
		t.Errorf("%s: %v", p.name, faults)
	}
}

// TestDirectories: a data directory serves one process, and only who it belongs to.
//
//fault:operator a second process on a data directory, or a directory of another role, broker or cluster => refused with a clear sentence
func TestDirectories(t *testing.T) {
	t.Parallel()
	k, abroad := newCluster(t), newCluster(t)
	dir := func(name string) string { return filepath.Join(k.dir, name) }
	broker := func(dir, group, id, controller string) []string {
		return []string{"broker", "--data-dir", dir, "--addr", "127.0.0.1:0", "--group", group, "--id", id, "--controller", controller}
	}
	controller := func(dir, id string) []string {
		return []string{"controller", "--data-dir", dir, "--addr", "127.0.0.1:0", "--raft-addr", freeAddr(t), "--id", id}
	}
	refuses(t, broker(dir("a"), "a", "1", k.ctlAddr), dir("a"), "is locked by process")
	refuses(t, controller(dir("controller"), "c1"), dir("controller"), "in use by another process")
	refuses(t, broker(filepath.Join(t.TempDir(), "new"), "a", "1", k.ctlAddr), `broker group "a"`, "another data directory")

	if err := k.brokers["a"].stop(); err != nil {
		t.Fatal(err)
	}
	refuses(t, broker(dir("a"), "b", "1", k.ctlAddr), `replica 1 of broker group "a"`)
	refuses(t, broker(dir("a"), "a", "2", k.ctlAddr), `replica 1 of broker group "a"`)
	refuses(t, broker(dir("a"), "a", "1", abroad.ctlAddr), "belongs to cluster", "its own controller")
	refuses(t, broker(dir("a"), "a", "0", k.ctlAddr), "--id")
	k.startBroker("a") // none of them has harmed it
	p := newPlace(t, k.client(0))
	p.put(4)

	if err := k.controller.stop(); err != nil {
		t.Fatal(err)
	}
	refuses(t, broker(dir("controller"), "b", "1", k.ctlAddr), dir("controller"), "is a controller's")
	refuses(t, controller(dir("a"), "c1"), dir("a"), "no controller's")
	refuses(t, controller(dir("controller"), "c9"), dir("controller"), `belongs to controller "c1"`)
	k.startController()
	k.adminBack(p.c)

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, broker(file, "a", "1", k.ctlAddr), file)
	refuses(t, []string{"dev", "--data-dir", file, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, file)
}

// TestDevDirectory is the same for a whole service in one process.
func TestDevDirectory(t *testing.T) {
	t.Parallel()
	d := ownDev(t)
	dir := ""
	for i, a := range d.p.cmd.Args {
		if a == "--data-dir" {
			dir = d.p.cmd.Args[i+1]
		}
	}
	refuses(t, []string{"dev", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}, dir, "another process")
	refuses(t, []string{"dev", "--data-dir", t.TempDir(), "--grpc-addr", d.grpc, "--http-addr", "127.0.0.1:0"}, d.grpc, "address already in use")
	p := newPlace(t, connect(t, d.grpc))
	p.put(1)
}

// TestTemporaryDirectory: dev without a directory removes the one it made.
func TestTemporaryDirectory(t *testing.T) {
	t.Parallel()
	bin, err := testbin.Path()
	if err != nil {
		t.Fatal(err)
	}
	p, addrs, err := start("temporary", bin, "dev", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(p.log(), "keeping data in ")
	dir, _, _ := strings.Cut(rest, " ")
	if _, err := os.Stat(dir); !ok || err != nil {
		t.Errorf("directory %q: %v", dir, err)
	}
	c := connect(t, addrs["grpc"])
	c.do(t.Context(), "SendMessage", request("SendMessage", "made-on-first-use", "")).is(t, "OK")
	ends(t, p)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("directory %q is still there: %v", dir, err)
	}
}
