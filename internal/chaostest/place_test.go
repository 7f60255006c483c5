package chaostest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/internal/crashtest/load"
	"github.com/perigee-mq/perigee/internal/testbin"
	"github.com/perigee-mq/perigee/internal/testproc"
)

// shape is what a cluster consists of.
type shape struct {
	controllers, replicas, proxies int
	groups                         []string
}

// whole is the cluster of all tests here.
var whole = shape{controllers: 3, replicas: 3, proxies: 2, groups: []string{"a", "b"}}

// place is a running cluster.
type place struct {
	shape
	dir     string
	bin     string              // the program
	small   map[string]bool     // directories that are disks of their own
	procs   []*testproc.Process // controllers, brokers, proxies
	names   []string
	net     *network
	disks   *throttle
	proxy   []string          // addresses for clients
	ctl     []string          // addresses of controllers, in their order
	stores  map[string]string // of broker groups by the address of a broker
	http    map[string]string // where processes tell of themselves
	data    map[string]string // directories
	groupOf map[string]string // of brokers by name
	watch   *watchers         // what controllers say
}

// small settings make what happens seldom happen often.
var small = []string{"--segment-bytes", "1MiB", "--checkpoint-interval", "700ms", "--checkpoint-bytes", "1MiB", "--txn-check-after", "1s", "--txn-check-interval", "2s"}

// brokerName is the name of a replica's process.
func brokerName(group string, id int) string { return fmt.Sprintf("%s%d", group, id) }

// newPlace lays a cluster out in an empty directory. n numbers the clusters of one test.
func newPlace(s shape, n int, dir string) (*place, error) {
	bin, err := testbin.Path()
	if err != nil {
		return nil, err
	}
	p := &place{shape: s, dir: dir, bin: bin, small: map[string]bool{}, disks: newThrottle(dir), stores: map[string]string{}, http: map[string]string{}, data: map[string]string{}, groupOf: map[string]string{}}
	for i := range s.controllers {
		p.names = append(p.names, fmt.Sprint("c", i+1))
	}
	for id := 1; id <= s.replicas; id++ {
		for _, g := range s.groups {
			p.names = append(p.names, brokerName(g, id))
			p.groupOf[brokerName(g, id)] = g
		}
	}
	for i := range s.proxies {
		p.names = append(p.names, fmt.Sprint("p", i+1))
	}
	if p.net, err = newNetwork(n, p.names); err != nil {
		return nil, err
	}
	addrs := map[string][3]string{}
	for _, name := range p.names {
		var a [3]string
		for i := range a {
			if a[i], err = p.net.addr(name, i); err != nil {
				return nil, err
			}
		}
		addrs[name], p.http[name], p.data[name] = a, a[2], filepath.Join(dir, name)
	}
	var members []string
	for _, name := range p.names[:s.controllers] {
		p.ctl, members = append(p.ctl, addrs[name][0]), append(members, name+"="+addrs[name][1])
	}
	ctl := strings.Join(p.ctl, ",")
	for _, name := range p.names {
		a, args := addrs[name], []string(nil)
		switch g := p.groupOf[name]; {
		case g != "":
			args = append([]string{"broker", "--data-dir", p.data[name], "--addr", a[0], "--group", g, "--id", name[len(g):], "--controller", ctl}, small...)
			p.stores[a[0]] = g
		case name[0] == 'c':
			args = []string{"controller", "--id", name, "--data-dir", p.data[name], "--addr", a[0], "--raft-addr", a[1], "--initial-members", strings.Join(members, ","), "--fast-failover"}
		default:
			args = []string{"proxy", "--grpc-addr", a[0], "--controller", ctl, "--auto-create=false"}
			p.proxy = append(p.proxy, a[0])
		}
		args = append(args, "--http-addr", a[2], "--log-level", "debug")
		p.procs = append(p.procs, testproc.New(name, filepath.Join(dir, name+".log"), p.net.run(name, bin), args))
	}
	return p, nil
}

// service is what the load is for.
func (p *place) service() load.Service {
	return load.Service{Proxies: p.proxy, Names: p.stores, Groups: p.groups, Replicated: p.replicas > 1, Pause: 100 * time.Millisecond}
}

func (p *place) proc(name string) *testproc.Process {
	for i, n := range p.names {
		if n == name {
			return p.procs[i]
		}
	}
	panic("no process " + name)
}

// controllerNames, proxyNames and brokerNames are those of the processes.
func (p *place) controllerNames() []string { return p.names[:p.controllers] }
func (p *place) proxyNames() []string      { return p.names[len(p.names)-p.proxies:] }
func (p *place) brokerNames() []string     { return p.names[p.controllers : len(p.names)-p.proxies] }

// replicasOf are the brokers of a group.
func (p *place) replicasOf(group string) (out []string) {
	for _, n := range p.brokerNames() {
		if p.groupOf[n] == group {
			out = append(out, n)
		}
	}
	return out
}

// start starts everything for the first time. The first replica of each group founds it.
func (p *place) start() error {
	if err := p.launch(append(slices.Clone(p.controllerNames()), p.proxyNames()...)...); err != nil {
		return err
	}
	if err := p.serving(p.controllerNames()...); err != nil {
		return err
	}
	p.watch = newWatchers(p)
	for i, name := range p.brokerNames() {
		if err := p.launch(name); err != nil {
			return err
		}
		if i < len(p.groups) { // the others have somebody to follow
			if err := p.serving(name); err != nil {
				return err
			}
		}
	}
	if err := p.serving(p.names...); err != nil {
		return err
	}
	return p.rest()
}

func (p *place) launch(names ...string) error {
	for _, n := range names {
		if err := p.proc(n).Launch(); err != nil {
			return err
		}
	}
	return nil
}

func (p *place) serving(names ...string) error {
	for _, n := range names {
		if err := p.proc(n).Serving(); err != nil {
			return err
		}
	}
	return nil
}

// kill ends processes as nearly at once as can be. They must have been there.
func (p *place) kill(names ...string) (err error) {
	for _, n := range names {
		err = errors.Join(err, p.proc(n).Kill())
	}
	return err
}

// restTime is how long a cluster may take until all is well again.
const restTime = 45 * time.Second

// rest waits until every group has a master that serves and all its replicas are in sync.
func (p *place) rest() error {
	return eventually(restTime, func() error {
		for _, n := range p.names {
			if !p.proc(n).Running() {
				return fmt.Errorf("%s ended by itself: see %s", n, p.proc(n).Log)
			}
			if !p.proc(n).Ready() {
				return fmt.Errorf("%s is not ready", n)
			}
		}
		for _, g := range p.groups {
			s := p.watch.now(g)
			switch {
			case s.GetMaster() == 0:
				return fmt.Errorf("group %s has no master", g)
			case !s.GetLive():
				return fmt.Errorf("the master of group %s, %d, does not serve", g, s.GetMaster())
			case len(s.GetSyncStateSet()) != p.replicas:
				return fmt.Errorf("group %s: only %v are in sync with %d", g, s.GetSyncStateSet(), s.GetMaster())
			}
		}
		return nil
	})
}

// end kills all that is there and takes the network away.
func (p *place) end() error {
	err := p.disks.fast()
	if p.watch != nil {
		p.watch.end()
	}
	for _, q := range p.procs {
		q.End()
	}
	return errors.Join(err, p.release(), p.net.end())
}

// masterOf is the name of the broker that leads a group, empty if none does.
func (p *place) masterOf(group string) string {
	if m := p.watch.now(group).GetMaster(); m != 0 {
		return brokerName(group, int(m))
	}
	return ""
}

// membersOf are the replicas of a group that do not lead.
func (p *place) membersOf(group string) []string {
	return others(p.replicasOf(group), p.masterOf(group))
}

// leads is the name of the controller that leads, empty if none does.
func (p *place) leads() string {
	if i := p.watch.leads(); i >= 0 {
		return p.names[i]
	}
	return ""
}

// command runs a command of the program that talks to controllers.
func (p *place) command(args ...string) error {
	args = append(args, "--controller", strings.Join(p.ctl, ","))
	if out, err := exec.Command(p.bin, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("perigee %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// complaints are errors that processes have logged, but for those with one of some texts.
func (p *place) complaints(but ...string) (out []string) {
	for _, q := range p.procs {
		for _, line := range q.Complaints() {
			if !slices.ContainsFunc(but, func(a string) bool { return strings.Contains(line, a) }) {
				out = append(out, line)
			}
		}
	}
	return out
}

// clear removes the data of a process that is down.
func (p *place) clear(name string) error {
	if dir := p.data[name]; p.small[dir] {
		delete(p.small, dir)
		if err := unmountSmall(dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(p.data[name])
}

// eventually tries until it succeeds or the time is over.
func eventually(d time.Duration, try func() error) (err error) {
	for end := time.Now().Add(d); ; pause(20 * time.Millisecond) {
		if err = try(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// pause lets time pass: what is done at random moments is to find the cluster at work.
func pause(d time.Duration) { testproc.Await(nil, d) }
