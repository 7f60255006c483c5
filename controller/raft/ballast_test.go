package raft

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/perigee-mq/perigee/controller/state"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/smalldisk"
)

// On a full disk changes are refused and nothing breaks; they are taken again when there is space, also of a
// write that the disk refused behind the check.
//
//fault:space the disk of a controller is full => changes of topics and groups are refused, nothing is lost, they are taken again when there is space
func TestFullDisk(t *testing.T) {
	disk := smalldisk.Mount(t, 24<<20)
	dir := filepath.Join(disk.Dir, "controller")
	n := mustOpen(t, Options{Dir: dir})
	n.put(t, "before")
	put := func(name string) error {
		_, err := n.Apply(state.PutGroup{Name: name})
		return err
	}
	disk.Fill(0)
	for range 3 {
		if err := put("refused"); !mqerr.Is(err, mqerr.DiskFull) {
			t.Fatalf("%v", err)
		}
	}
	if _, err := n.Apply(state.Resign{Shard: 1}); mqerr.Is(err, mqerr.DiskFull) {
		t.Errorf("brokers are refused too early: %v", err)
	}
	// The check is passed by, until even the ballast is used up and filled by others.
	for i := 0; n.ballast.have; i++ {
		b, err := state.EncodeCommand(state.PutGroup{Name: fmt.Sprintf("large%d", i)}, fmt.Sprintf("%0100000d", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.raft.Apply(b, time.Second).Error(); err != nil {
			t.Fatal(err)
		}
	}
	disk.Fill(0)
	if err := put("refused"); !mqerr.Is(err, mqerr.DiskFull) {
		t.Fatalf("%v", err)
	}
	if _, err := n.Apply(state.Resign{Shard: 1}); !mqerr.Is(err, mqerr.DiskFull) {
		t.Errorf("%v", err)
	}
	large, err := state.EncodeCommand(state.PutGroup{Name: "waits"}, fmt.Sprintf("%01000000d", 1))
	if err != nil {
		t.Fatal(err)
	}
	waits := n.raft.Apply(large, time.Second)
	waited := make(chan error, 1)
	go func() { waited <- waits.Error() }()
	select {
	case err := <-waited:
		t.Logf("the log had room left for it (%v)", err)
		waited <- err
	case <-time.After(3 * fullPause):
	}
	disk.Empty()
	select {
	case err := <-waited:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it did not go on")
	}
	n.put(t, "after")
	select {
	case err := <-n.Failed():
		t.Fatalf("it failed: %v", err)
	default:
	}
	n.stop(t)
	n = mustOpen(t, Options{Dir: dir})
	n.View(func(s *state.State) {
		for _, name := range []string{"before", "after", "waits", "large0"} {
			if s.Group(name) == nil {
				t.Errorf("group %s is lost", name)
			}
		}
		if s.Group("refused") != nil {
			t.Error("a refused change was made")
		}
	})
	n.stop(t)
}

// A node that waits for space can be stopped.
func TestStopOnFullDisk(t *testing.T) {
	disk := smalldisk.Mount(t, 16<<20)
	n := mustOpen(t, Options{Dir: filepath.Join(disk.Dir, "controller")})
	n.put(t, "before")
	n.ballast.spend()
	disk.Fill(0)
	large, err := state.EncodeCommand(state.PutGroup{Name: "waits"}, fmt.Sprintf("%04000000d", 1))
	if err != nil {
		t.Fatal(err)
	}
	f := n.raft.Apply(large, time.Second)
	n.stop(t)
	_ = f.Error()
}

// The ballast of a former process counts: a controller that starts on a full disk has its space.
//
//fault:space a controller starts on a full disk => the space that is kept for this lets it lead
func TestStartOnFullDisk(t *testing.T) {
	disk := smalldisk.Mount(t, 16<<20)
	dir := filepath.Join(disk.Dir, "controller")
	n := mustOpen(t, Options{Dir: dir})
	n.put(t, "before")
	n.stop(t)
	disk.Fill(0)
	n = mustOpen(t, Options{Dir: dir})
	defer n.stop(t)
	if _, err := n.Apply(state.Resign{Shard: 1}); mqerr.Is(err, mqerr.DiskFull) {
		t.Errorf("brokers cannot come back: %v", err)
	}
	if !n.ballast.spend() || disk.Free() < ballastBytes {
		t.Errorf("%d bytes are free", disk.Free())
	}
	if n.ballast.spend() {
		t.Error("it was spent twice")
	}
	disk.Empty()
}

// A controller that is started on a disk that is full to the last byte does not hang: a new directory is refused, one
// that was in use comes up and leads when there is room.
//
//fault:space a controller starts on a disk that is full to the last byte => a new directory is refused with what to do, one that was in use leads when there is room; neither hangs
func TestOpenWithoutAnySpace(t *testing.T) {
	disk := smalldisk.Mount(t, 16<<20)
	dir := filepath.Join(disk.Dir, "controller")
	n := mustOpen(t, Options{Dir: dir})
	n.put(t, "before")
	n.ballast.spend()
	n.stop(t)
	for left := int64(0); left <= 160<<10; left += 4 << 10 {
		d := dir
		if left > 0 {
			d = filepath.Join(disk.Dir, fmt.Sprint("new", left))
		}
		disk.Fill(left)
		type opened struct {
			n   *Node
			err error
		}
		done := make(chan opened, 1)
		go func() {
			n, err := Open(Options{Dir: d, ID: "c1", Log: slog.New(slog.DiscardHandler), Leading: func(bool) {}})
			done <- opened{n, err}
		}()
		select {
		case o := <-done:
			disk.Empty()
			switch {
			case o.err == nil:
				if err := o.n.Close(); err != nil {
					t.Error(err)
				}
			case left == 0:
				t.Errorf("a directory in use: %v", o.err)
			case !isFull(o.err):
				t.Errorf("%d bytes left: %v", left, o.err)
			}
			if err := os.RemoveAll(filepath.Join(disk.Dir, fmt.Sprint("new", left))); err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("with %d bytes left it hangs", left)
		}
	}
}

// TestOpeningDoesNotWait: a write of a node that is being opened is refused when nothing is left for it.
func TestOpeningDoesNotWait(t *testing.T) {
	s := &store{ballast: &ballast{fs: vfs.OS, dir: t.TempDir(), log: slog.New(slog.DiscardHandler)}, closing: make(chan struct{})}
	s.opening.Store(true)
	done := make(chan error, 1)
	go func() { done <- s.write(func() error { return unix.ENOSPC }) }()
	select {
	case err := <-done:
		if !mqerr.Is(err, mqerr.DiskFull) || !isFull(err) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		close(s.closing)
		t.Error("it waits")
	}
}
