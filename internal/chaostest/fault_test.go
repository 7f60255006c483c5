package chaostest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// fault is one that can be done. It is over when do returns, but for what has to come to rest.
type fault struct {
	name     string
	net      bool // it needs links that can be cut
	disk     bool // it needs disks that can be slow
	small    bool // it needs disks that can be full
	replicas int  // of a group, at least
	do       func(f *doing) error
}

// doing is a fault that is being done.
type doing struct {
	*place
	rng *rand.Rand
	did []string // what was done, for people
}

func (f *doing) say(format string, args ...any) { f.did = append(f.did, fmt.Sprintf(format, args...)) }

// pick returns one of some names.
func (f *doing) pick(names []string) string { return names[f.rng.IntN(len(names))] }

// between is a random time.
func (f *doing) between(from, to time.Duration) time.Duration {
	return from + time.Duration(f.rng.Int64N(int64(to-from)))
}

// hold lets a fault last.
func (f *doing) hold(from, to time.Duration) {
	d := f.between(from, to)
	f.say("for %v", d.Round(10*time.Millisecond))
	pause(d)
}

// master, member and leader are processes by their role, if there is one, or else any that could have it.
func (f *doing) master() string {
	g := f.pick(f.groups)
	if m := f.masterOf(g); m != "" {
		return m
	}
	return f.pick(f.replicasOf(g))
}

func (f *doing) member() string { return f.pick(f.membersOf(f.pick(f.groups))) }

func (f *doing) leader() string {
	if l := f.leads(); l != "" {
		return l
	}
	return f.pick(f.controllerNames())
}

// killed kills processes, and starts them again after a while in an order of its own.
func (f *doing) killed(names ...string) error {
	f.say("kill -9 %s", strings.Join(names, ", "))
	if err := f.kill(names...); err != nil {
		return err
	}
	f.hold(50*time.Millisecond, 2500*time.Millisecond)
	return f.again(names...)
}

// again starts processes in an order of its own.
func (f *doing) again(names ...string) error {
	names = slices.Clone(names)
	f.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return f.launch(names...)
}

// ended ends a process in order and starts it again.
func (f *doing) ended(name string) error {
	f.say("SIGTERM %s", name)
	if err := f.proc(name).Stop(stopTime); err != nil {
		return err
	}
	return f.again(name)
}

// stopTime is how long a process may take to end in order.
const stopTime = 40 * time.Second

// killedTwice kills a process, and again when it is starting.
func (f *doing) killedTwice(name string) error {
	f.say("kill -9 %s", name)
	if err := f.kill(name); err != nil {
		return err
	}
	f.hold(0, 2*time.Second)
	if err := f.launch(name); err != nil {
		return err
	}
	d := f.between(0, time.Second)
	pause(d)
	f.say("kill -9 %s %v after its start", name, d.Round(time.Millisecond))
	if err := f.kill(name); err != nil {
		return err
	}
	return f.again(name)
}

// frozen stops processes for a while.
func (f *doing) frozen(names ...string) error {
	return f.frozenFor(500*time.Millisecond, 8*time.Second, names...)
}

func (f *doing) frozenFor(from, to time.Duration, names ...string) error {
	f.say("SIGSTOP %s", strings.Join(names, ", "))
	for _, n := range names {
		f.proc(n).Signal(syscall.SIGSTOP)
	}
	f.hold(from, to)
	for _, n := range names {
		f.proc(n).Signal(syscall.SIGCONT)
	}
	return nil
}

// apart cuts all links between two sides for a while.
func (f *doing) apart(one, other []string) error {
	f.say("%s | %s", strings.Join(one, " "), strings.Join(other, " "))
	if err := f.net.split(one, other); err != nil {
		return err
	}
	f.hold(500*time.Millisecond, 8*time.Second)
	return f.net.heal()
}

// deaf lets nothing reach or leave a process, or some of the others, in one direction.
func (f *doing) deaf(name string, from []string, hears bool) error {
	f.say("%s", map[bool]string{true: name + " does not reach ", false: name + " hears nothing of "}[hears]+strings.Join(from, " "))
	for _, o := range from {
		a, b := o, name
		if hears {
			a, b = name, o
		}
		if err := f.net.cut(a, b); err != nil {
			return err
		}
	}
	f.hold(500*time.Millisecond, 8*time.Second)
	return f.net.heal()
}

// flapped cuts the links of a process again and again.
func (f *doing) flapped(name string, from []string) error {
	times := 3 + f.rng.IntN(6)
	f.say("%s is cut off %d times", name, times)
	for range times {
		if err := f.net.split([]string{name}, from); err != nil {
			return err
		}
		pause(f.between(50*time.Millisecond, 700*time.Millisecond))
		if err := f.net.heal(); err != nil {
			return err
		}
		pause(f.between(50*time.Millisecond, 700*time.Millisecond))
	}
	return nil
}

// half is a random half of all processes.
func (f *doing) half() (one, other []string) {
	for {
		one, other = nil, nil
		for _, n := range f.names {
			if f.rng.IntN(2) == 0 {
				one = append(one, n)
			} else {
				other = append(other, n)
			}
		}
		if len(one) > 0 && len(other) > 0 {
			return one, other
		}
	}
}

// winner waits for another master of a group than in an epoch.
func (f *doing) winner(group string, epoch uint64) string {
	f.watch.await(group, 8*time.Second, func(s *controllerv1.Shard) bool { return s.GetEpoch() > epoch && s.GetMaster() != 0 })
	return f.masterOf(group)
}

// slowed lets the disk of processes take a few writes in a second for a while.
func (f *doing) slowed(names ...string) error {
	iops := 10 + f.rng.IntN(40)
	f.say("the disk of %s takes %d writes/s", strings.Join(names, ", "), iops)
	for _, n := range names {
		if err := f.disks.slow(n, f.proc(n).Pid(), iops); err != nil {
			return err
		}
	}
	f.hold(time.Second, 6*time.Second)
	return f.disks.fast()
}
