package chaostest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/internal/testproc"
)

// wipeMember loses the directory of a replica. It is refused under its id until it has been taken out, and comes back as a new one, as
// the manual says.
func wipeMember(f *doing) error {
	m := f.member()
	group := f.groupOf[m]
	f.say("kill -9 %s, its directory is lost", m)
	if err := f.kill(m); err != nil {
		return err
	}
	if err := f.clear(m); err != nil {
		return err
	}
	if err := f.refused(m, f.proc(m).Args); err != nil {
		return err
	}
	if err := f.clear(m); err != nil {
		return err
	}
	if err := f.command("cluster", "group", "remove-replica", group, strings.TrimPrefix(m, group)); err != nil {
		return err
	}
	f.say("it is removed and comes back empty")
	return f.again(m)
}

// refused starts a process beside the others, which must end by itself with an error.
func (f *doing) refused(name string, args []string) error {
	q := testproc.New(name, filepath.Join(f.dir, name+"-refused.log"), f.net.run(name, f.bin), args)
	if err := q.Launch(); err != nil {
		return err
	}
	defer q.End()
	timer := time.NewTimer(15 * time.Second)
	defer timer.Stop()
	select {
	case <-q.Ended():
	case <-timer.C:
		return fmt.Errorf("%s is not refused: see %s", name, q.Log)
	}
	if q.Ready() {
		return fmt.Errorf("%s served, and should be refused: see %s", name, q.Log)
	}
	f.say("%s is refused", name)
	return nil
}

// second starts another process on the directory of a master.
func second(f *doing) error {
	m := f.master()
	args := slices.Clone(f.proc(m).Args)
	for i, a := range args {
		for port := range 3 {
			if from, err := f.net.addr(m, port); err == nil && f.net.real && a == from {
				args[i], _ = f.net.addr(m, port+10)
			}
		}
	}
	f.say("another %s", m)
	return f.refused(m, args)
}

// wipeController loses the directory of a controller, which is taken out and comes back as a new one, as the manual says.
func wipeController(f *doing) error {
	c := f.pick(f.controllerNames())
	f.say("kill -9 %s, its directory is lost, it is removed and comes back empty", c)
	if err := f.kill(c); err != nil {
		return err
	}
	if err := f.clear(c); err != nil {
		return err
	}
	if err := f.insist("cluster", "members", "remove", c); err != nil {
		return err
	}
	raft := ""
	args := f.proc(c).Args
	for i, a := range args {
		switch a {
		case "--raft-addr":
			raft = args[i+1]
		case "--initial-members":
			args = append(slices.Clone(args[:i]), append([]string{"--join"}, args[i+2:]...)...)
		}
	}
	f.proc(c).Args = args
	if err := f.launch(c); err != nil {
		return err
	}
	return f.insist("cluster", "members", "add", c+"="+raft)
}

// insist repeats a command until it succeeds: an election of controllers may be under way.
func (f *doing) insist(args ...string) error {
	return eventually(20*time.Second, func() error { return f.command(args...) })
}

// loseViews loses everything of a replica but its log and what it has promised.
func loseViews(f *doing) error {
	m := f.member()
	f.say("kill -9 %s, its views are lost", m)
	if err := f.kill(m); err != nil {
		return err
	}
	for _, d := range []string{"checkpoint", "queue", "index", "dedup"} {
		if f.rng.IntN(4) == 0 && d != "checkpoint" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.data[m], d)); err != nil {
			return err
		}
	}
	return f.again(m)
}

// oldCheckpoint gives a replica checkpoints of a while ago.
func oldCheckpoint(f *doing) error {
	m := f.member()
	f.say("kill -9 %s", m)
	if err := f.kill(m); err != nil {
		return err
	}
	kept, now := filepath.Join(f.dir, "checkpoint-of-"+m), filepath.Join(f.data[m], "checkpoint")
	if err := os.RemoveAll(kept); err != nil {
		return err
	}
	if err := os.CopyFS(kept, os.DirFS(now)); err != nil {
		return err
	}
	if err := f.again(m); err != nil {
		return err
	}
	f.hold(time.Second, 4*time.Second)
	f.say("kill -9 %s, its checkpoints are those of before", m)
	if err := f.kill(m); err != nil {
		return err
	}
	if err := os.RemoveAll(now); err != nil {
		return err
	}
	if err := os.Rename(kept, now); err != nil {
		return err
	}
	return f.again(m)
}
