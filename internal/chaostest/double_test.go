package chaostest

import (
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
)

// killWinner kills a master and, at most half a second after its election, its successor.
func killWinner(f *doing) error {
	m := f.master()
	group := f.groupOf[m]
	epoch := f.watch.now(group).GetEpoch()
	f.say("kill -9 %s", m)
	if err := f.kill(m); err != nil {
		return err
	}
	w := f.winner(group, epoch)
	if w == "" || w == m {
		f.say("nobody was elected within 8s")
		return f.again(m)
	}
	d := f.between(0, 500*time.Millisecond)
	pause(d)
	f.say("kill -9 the winner, %s, %v after its election", w, d.Round(time.Millisecond))
	if err := f.kill(w); err != nil {
		return err
	}
	f.hold(0, 3*time.Second)
	return f.again(m, w)
}

// cutWinner cuts off the winner of an election at once.
func cutWinner(f *doing) error {
	m := f.master()
	group := f.groupOf[m]
	epoch := f.watch.now(group).GetEpoch()
	f.say("kill -9 %s", m)
	if err := f.kill(m); err != nil {
		return err
	}
	w := f.winner(group, epoch)
	if w == "" || w == m {
		f.say("nobody was elected within 8s")
		return f.again(m)
	}
	pause(f.between(0, 500*time.Millisecond))
	if err := f.apart([]string{w}, others(f.names, w)); err != nil {
		return err
	}
	return f.again(m)
}

// change kills a member, waits until its group's set is about to lose it or just has, and returns the master.
func (f *doing) change() (master, member string, err error) {
	master = f.master()
	member = f.pick(others(f.replicasOf(f.groupOf[master]), master))
	f.say("kill -9 %s", member)
	if err := f.kill(member); err != nil {
		return "", "", err
	}
	if f.rng.IntN(2) == 0 {
		pause(f.between(0, 1500*time.Millisecond)) // a member that is gone leaves the set after a second
		return master, member, nil
	}
	f.watch.await(f.groupOf[member], 3*time.Second, func(s *controllerv1.Shard) bool { return len(s.GetSyncStateSet()) < f.replicas })
	return master, member, nil
}

// cutInChange cuts a master from the controllers while the set of its group changes.
func cutInChange(f *doing) error {
	master, member, err := f.change()
	if err != nil {
		return err
	}
	if err := f.apart([]string{master}, f.controllerNames()); err != nil {
		return err
	}
	return f.again(member)
}

// killInChange kills a master while the set of its group changes: one replica is left for a while.
func killInChange(f *doing) error {
	master, member, err := f.change()
	if err != nil {
		return err
	}
	f.say("kill -9 its master, %s", master)
	if err := f.kill(master); err != nil {
		return err
	}
	f.hold(0, 3*time.Second)
	return f.again(member, master)
}

// killPartitioned cuts off a member, kills the master, and then its successor while the first member is back but behind.
func killPartitioned(f *doing) error {
	m := f.master()
	group := f.groupOf[m]
	cut := f.pick(others(f.replicasOf(group), m))
	f.say("%s is cut off", cut)
	if err := f.net.split([]string{cut}, others(f.names, cut)); err != nil {
		return err
	}
	f.hold(500*time.Millisecond, 5*time.Second)
	epoch := f.watch.now(group).GetEpoch()
	f.say("kill -9 %s", m)
	if err := f.kill(m); err != nil {
		return err
	}
	w := f.winner(group, epoch)
	if err := f.net.heal(); err != nil {
		return err
	}
	if w == "" || w == m || w == cut {
		f.say("the winner is %q", w)
		return f.again(m)
	}
	d := f.between(0, 500*time.Millisecond)
	pause(d)
	f.say("kill -9 the winner, %s, %v after %s is back", w, d.Round(time.Millisecond), cut)
	if err := f.kill(w); err != nil {
		return err
	}
	f.hold(0, 3*time.Second)
	return f.again(m, w)
}

// threeCopies wants as many copies as there are replicas, and then one of them dies: nothing is confirmed until it is back.
func threeCopies(f *doing) error {
	m := f.member()
	group := f.groupOf[m]
	f.say("min-isr 3 of %s, kill -9 %s", group, m)
	if err := f.command("cluster", "group", "set", group, "--min-isr", "3"); err != nil {
		return err
	}
	if err := f.kill(m); err != nil {
		return err
	}
	f.hold(500*time.Millisecond, 4*time.Second)
	if err := f.again(m); err != nil {
		return err
	}
	if err := f.rest(); err != nil {
		return err
	}
	return f.command("cluster", "group", "set", group, "--min-isr", "2")
}
