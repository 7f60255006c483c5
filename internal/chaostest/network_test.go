package chaostest

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/perigee-mq/perigee/internal/testport"
)

// network is what connects the processes. Each has a name.
type network struct {
	real  bool // each process has a namespace
	ips   map[string]string
	links map[string]string // interface of the router towards a process
	cuts  map[[2]string]bool
}

// prepared is done once for all episodes.
var prepared = sync.OnceValue(prepare)

// newNetwork connects processes. n numbers the networks of one test.
func newNetwork(n int, names []string) (*network, error) {
	w := &network{real: *caged, ips: map[string]string{}, links: map[string]string{}, cuts: map[[2]string]bool{}}
	if !w.real {
		return w, nil
	}
	if err := prepared(); err != nil {
		return nil, err
	}
	// 198.18.0.0/15 is for tests of networks.
	for i, name := range names {
		link, near, far := fmt.Sprintf("v%d-%d", n, i), fmt.Sprintf("198.18.%d.%d", n%256, 4*i+1), fmt.Sprintf("198.18.%d.%d", n%256, 4*i+2)
		w.ips[name], w.links[name] = far, link
		for _, args := range [][]string{
			{"netns", "add", w.space(name)},
			{"link", "add", link, "type", "veth", "peer", "name", "e0", "netns", w.space(name)},
			{"addr", "add", near + "/30", "dev", link},
			{"link", "set", link, "up"},
			{"-n", w.space(name), "link", "set", "lo", "up"},
			{"-n", w.space(name), "addr", "add", far + "/30", "dev", "e0"},
			{"-n", w.space(name), "link", "set", "e0", "up"},
			{"-n", w.space(name), "route", "add", "default", "via", near},
		} {
			if err := ip(args...); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// space is the namespace of a process.
func (w *network) space(name string) string { return "pg-" + w.links[name] + "-" + name }

// addr is an address on which a process can listen. port counts from 0.
func (w *network) addr(name string, port int) (string, error) {
	if !w.real {
		return testport.Find()
	}
	return fmt.Sprintf("%s:%d", w.ips[name], 20001+port), nil
}

// run is what a program of a process is started with.
func (w *network) run(name, bin string) []string {
	if !w.real {
		return []string{bin}
	}
	return []string{"ip", "netns", "exec", w.space(name), bin}
}

// cut lets nothing through from one process to another.
func (w *network) cut(from, to string) error { return w.rule("add", from, to, true) }

// mend undoes cut.
func (w *network) mend(from, to string) error { return w.rule("del", from, to, false) }

func (w *network) rule(verb, from, to string, cut bool) error {
	k := [2]string{from, to}
	if from == to || w.cuts[k] == cut {
		return nil
	}
	w.cuts[k] = cut
	return ip("rule", verb, "pref", "100", "iif", w.links[from], "to", w.ips[to], "blackhole")
}

// split lets nothing through between two sides, in both directions.
func (w *network) split(one, other []string) error {
	for _, a := range one {
		for _, b := range other {
			if err := w.cut(a, b); err != nil {
				return err
			}
			if err := w.cut(b, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// heal undoes all cuts.
func (w *network) heal() error {
	for k, cut := range w.cuts {
		if cut {
			if err := w.mend(k[0], k[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// end takes the network away.
func (w *network) end() error {
	if !w.real {
		return nil
	}
	if err := w.heal(); err != nil {
		return err
	}
	for name := range w.links {
		if err := ip("netns", "del", w.space(name)); err != nil {
			return err
		}
	}
	return nil
}

// others are all but some.
func others(all []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(some, n) })
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
