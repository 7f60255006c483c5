package chaostest

import (
	"slices"
	"time"
)

// faults are all that can be done.
var faults = []fault{
	{name: "kill master", do: func(f *doing) error { return f.killed(f.master()) }},
	{name: "kill member", replicas: 2, do: func(f *doing) error { return f.killed(f.member()) }},
	{name: "kill controller leader", do: func(f *doing) error { return f.killed(f.leader()) }},
	{name: "kill controller", do: func(f *doing) error { return f.killed(f.pick(others(f.controllerNames(), f.leader()))) }},
	{name: "kill proxy", do: func(f *doing) error { return f.killed(f.pick(f.proxyNames())) }},
	{name: "kill proxies", do: func(f *doing) error { return f.killed(f.proxyNames()...) }},
	{name: "kill master and controller leader", do: func(f *doing) error { return f.killed(f.master(), f.leader()) }},
	{name: "kill masters", do: func(f *doing) error { return f.killed(f.allMasters()...) }},
	{name: "kill group", do: func(f *doing) error { return f.killed(f.replicasOf(f.pick(f.groups))...) }},
	{name: "kill brokers", do: func(f *doing) error { return f.killed(f.brokerNames()...) }},
	{name: "kill all", do: func(f *doing) error { return f.killed(f.names...) }},
	{name: "kill controllers", do: func(f *doing) error { return f.killed(f.controllerNames()...) }},
	{name: "kill controller majority", do: func(f *doing) error {
		return f.killed(f.leader(), f.pick(others(f.controllerNames(), f.leader())))
	}},
	{name: "kill controller majority and master", do: func(f *doing) error {
		return f.killed(f.leader(), f.pick(others(f.controllerNames(), f.leader())), f.master())
	}},
	{name: "kill master at its start", do: func(f *doing) error { return f.killedTwice(f.master()) }},
	{name: "kill member at its start", replicas: 2, do: func(f *doing) error { return f.killedTwice(f.member()) }},
	{name: "kill controller leader at its start", do: func(f *doing) error { return f.killedTwice(f.leader()) }},
	{name: "stop master", do: func(f *doing) error { return f.ended(f.master()) }},
	{name: "stop member", replicas: 2, do: func(f *doing) error { return f.ended(f.member()) }},
	{name: "stop controller leader", do: func(f *doing) error { return f.ended(f.leader()) }},
	{name: "stop proxy", do: func(f *doing) error { return f.ended(f.pick(f.proxyNames())) }},
	{name: "freeze master", do: func(f *doing) error { return f.frozen(f.master()) }},
	{name: "freeze member", replicas: 2, do: func(f *doing) error { return f.frozen(f.member()) }},
	{name: "freeze controller leader", do: func(f *doing) error { return f.frozen(f.leader()) }},
	{name: "freeze proxy", do: func(f *doing) error { return f.frozen(f.pick(f.proxyNames())) }},
	{name: "freeze master for long", do: func(f *doing) error { return f.frozenFor(8*time.Second, 20*time.Second, f.master()) }},
	{name: "freeze master and controller leader", do: func(f *doing) error { return f.frozen(f.master(), f.leader()) }},
	{name: "slow disk of master", disk: true, do: func(f *doing) error { return f.slowed(f.master()) }},
	{name: "slow disk of member", disk: true, replicas: 2, do: func(f *doing) error { return f.slowed(f.member()) }},
	{name: "slow disk of controller leader", disk: true, do: func(f *doing) error { return f.slowed(f.leader()) }},
	{name: "cut off master", net: true, do: func(f *doing) error { m := f.master(); return f.apart([]string{m}, others(f.names, m)) }},
	{name: "cut off member", net: true, replicas: 2, do: func(f *doing) error { m := f.member(); return f.apart([]string{m}, others(f.names, m)) }},
	{name: "cut off controller leader", net: true, do: func(f *doing) error { l := f.leader(); return f.apart([]string{l}, others(f.names, l)) }},
	{name: "cut off proxy", net: true, do: func(f *doing) error {
		p := f.pick(f.proxyNames())
		return f.apart([]string{p}, others(f.names, p))
	}},
	{name: "cut master from controllers", net: true, do: func(f *doing) error { return f.apart([]string{f.master()}, f.controllerNames()) }},
	{name: "cut master from proxies", net: true, do: func(f *doing) error { return f.apart([]string{f.master()}, f.proxyNames()) }},
	{name: "cut master from members", net: true, replicas: 2, do: func(f *doing) error {
		m := f.master()
		return f.apart([]string{m}, others(f.replicasOf(f.groupOf[m]), m))
	}},
	{name: "cut proxies from controllers", net: true, do: func(f *doing) error { return f.apart(f.proxyNames(), f.controllerNames()) }},
	{name: "cut controllers from each other", net: true, do: func(f *doing) error {
		return f.apart(f.controllerNames()[:1], f.controllerNames()[1:])
	}},
	{name: "cut a link of the controller leader", net: true, do: func(f *doing) error {
		l := f.leader()
		return f.apart([]string{l}, []string{f.pick(others(f.controllerNames(), l))})
	}},
	{name: "cut a link of the master to a member", net: true, replicas: 3, do: func(f *doing) error {
		m := f.master()
		return f.apart([]string{m}, []string{f.pick(others(f.replicasOf(f.groupOf[m]), m))})
	}},
	{name: "links of master come and go", net: true, do: func(f *doing) error { m := f.master(); return f.flapped(m, others(f.names, m)) }},
	{name: "links of controller leader come and go", net: true, do: func(f *doing) error { l := f.leader(); return f.flapped(l, others(f.names, l)) }},
	{name: "halves", net: true, do: func(f *doing) error { one, other := f.half(); return f.apart(one, other) }},
	{name: "master hears nothing", net: true, do: func(f *doing) error { m := f.master(); return f.deaf(m, others(f.names, m), false) }},
	{name: "master reaches nobody", net: true, do: func(f *doing) error { m := f.master(); return f.deaf(m, others(f.names, m), true) }},
	{name: "master does not reach controllers", net: true, do: func(f *doing) error { return f.deaf(f.master(), f.controllerNames(), true) }},
	{name: "master hears nothing of controllers", net: true, do: func(f *doing) error { return f.deaf(f.master(), f.controllerNames(), false) }},
	{name: "master does not reach members", net: true, replicas: 2, do: func(f *doing) error {
		m := f.master()
		return f.deaf(m, others(f.replicasOf(f.groupOf[m]), m), true)
	}},
	{name: "master hears nothing of members", net: true, replicas: 2, do: func(f *doing) error {
		m := f.master()
		return f.deaf(m, others(f.replicasOf(f.groupOf[m]), m), false)
	}},
	{name: "controller leader hears nothing", net: true, do: func(f *doing) error { l := f.leader(); return f.deaf(l, others(f.names, l), false) }},
	{name: "elect another master", replicas: 2, do: func(f *doing) error {
		g := f.pick(f.groups)
		f.say("cluster elect %s", g)
		return f.watch.elect(g)
	}},
	{name: "kill the winner of an election", replicas: 3, do: killWinner},
	{name: "cut off the winner of an election", net: true, replicas: 3, do: cutWinner},
	{name: "cut master from controllers as the set changes", net: true, replicas: 3, do: cutInChange},
	{name: "kill master as the set changes", replicas: 3, do: killInChange},
	{name: "kill winner as a member is cut off", net: true, replicas: 3, do: killPartitioned},
	{name: "lead of controllers is handed over", do: func(f *doing) error {
		to := f.pick(others(f.controllerNames(), f.leader()))
		f.say("cluster transfer %s", to)
		return f.command("cluster", "transfer", to)
	}},
	{name: "three copies are wanted as a member dies", replicas: 3, do: threeCopies},
	{name: "wipe member", replicas: 3, do: wipeMember},
	{name: "wipe controller", do: wipeController},
	{name: "member loses its views", replicas: 2, do: loseViews},
	{name: "member gets an old checkpoint", replicas: 2, do: oldCheckpoint},
	{name: "a second process on the directory of a master", do: second},
	{name: "full disk of member", small: true, replicas: 3, do: func(f *doing) error { return f.filled(f.member()) }},
	{name: "full disk of master", small: true, replicas: 3, do: fullMaster},
}

// short are the faults of a short run, in their order; those that can't be done here are left out.
var short = []string{
	"kill master", "stop master", "kill controller leader", "kill the winner of an election", "cut off master", "master hears nothing of members",
	"freeze master", "slow disk of member", "kill controller majority", "kill proxy", "wipe member", "kill master and controller leader",
}

// allMasters are the masters of all groups.
func (f *doing) allMasters() (out []string) {
	for _, g := range f.groups {
		if m := f.masterOf(g); m != "" {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		out = append(out, f.pick(f.brokerNames()))
	}
	return out
}

// possible are the faults that can be done here.
func (p *place) possible() (out []fault, skipped []string) {
	for _, f := range faults {
		switch {
		case f.replicas > p.replicas, (f.net || f.small) && !p.net.real, f.disk && p.disks.none != "":
			skipped = append(skipped, f.name)
		default:
			out = append(out, f)
		}
	}
	return out, skipped
}

// named finds a fault.
func named(all []fault, name string) (fault, bool) {
	i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	if i < 0 {
		return fault{}, false
	}
	return all[i], true
}
