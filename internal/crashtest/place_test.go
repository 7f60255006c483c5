package crashtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/crashtest/load"
	"github.com/perigee-mq/perigee/internal/testbin"
	"github.com/perigee-mq/perigee/internal/testproc"
)

// place is a running service: one process, or a cluster of them.
type place struct {
	mode    string
	short   bool                // it keeps old messages for a short time only
	procs   []*testproc.Process // in the order of their starts
	data    map[string]string   // directories of brokers
	proxies []string            // addresses for clients
	names   map[string]string   // of broker groups by the address that deliveries name; none: there is one
	victims [][]string          // what is killed in one round
	brokers []string            // the processes that write a log
}

// small settings make what happens seldom happen often.
var small = []string{"--segment-bytes", "1MiB", "--checkpoint-interval", "700ms", "--checkpoint-bytes", "1MiB", "--txn-check-after", "1s", "--txn-check-interval", "2s", "--log-level", "debug"}

// tight settings make old messages go while others come.
var tight = []string{"--retention-bytes", "3MiB", "--retention-look", "200ms"}

// newPlace lays a service out in an empty directory. With retention it keeps a little only.
func newPlace(mode, dir string, retention bool) (*place, error) {
	small := small
	if retention {
		small = slices.Concat(small, tight)
	}
	bin, err := testbin.Path()
	if err != nil {
		return nil, err
	}
	p := &place{mode: mode, short: retention, data: map[string]string{}}
	add := func(name string, args ...string) {
		p.procs = append(p.procs, testproc.New(name, filepath.Join(dir, name+".log"), []string{bin}, args, deleted))
	}
	if mode == "dev" {
		grpc, err := freeAddr()
		if err != nil {
			return nil, err
		}
		add("dev", append([]string{"dev", "--data-dir", filepath.Join(dir, "dev"), "--grpc-addr", grpc, "--http-addr", "127.0.0.1:0"}, small...)...)
		p.data["dev"] = filepath.Join(dir, "dev", "broker")
		p.proxies, p.victims, p.brokers = []string{grpc}, [][]string{{"dev"}}, []string{"dev"}
		return p, nil
	}
	var addrs []string
	for len(addrs) < 6 {
		a, err := freeAddr()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	p.names = map[string]string{addrs[2]: "a", addrs[3]: "b"}
	add("controller", "controller", "--data-dir", filepath.Join(dir, "controller"), "--addr", addrs[0], "--raft-addr", addrs[1])
	for i, group := range []string{"a", "b"} {
		add(group, append([]string{"broker", "--data-dir", filepath.Join(dir, group), "--addr", addrs[2+i], "--group", group, "--id", "1", "--controller", addrs[0]}, small...)...)
		p.data[group] = filepath.Join(dir, group)
	}
	for i := range 2 {
		add(fmt.Sprint("proxy", i), "proxy", "--grpc-addr", addrs[4+i], "--http-addr", "127.0.0.1:0", "--controller", addrs[0], "--auto-create=false")
	}
	p.proxies, p.brokers = addrs[4:], []string{"a", "b"}
	p.victims = [][]string{
		{"a"},
		{"b"},
		{"a"},
		{"b"},
		{"proxy0"},
		{"proxy1"},
		{"controller"},
		{"a", "b"},
		{"a", "proxy0"},
		{"proxy0", "proxy1"},
		{"controller", "b"},
		{"controller", "a", "b", "proxy0", "proxy1"},
	}
	return p, nil
}

func (p *place) proc(name string) *testproc.Process {
	for _, q := range p.procs {
		if q.Name == name {
			return q
		}
	}
	panic("no process " + name)
}

// start starts processes, in the order of the service, and waits until they serve.
func (p *place) start(names ...string) error {
	began := map[string]bool{}
	for _, n := range names {
		began[n] = true
	}
	for _, q := range p.procs {
		if len(names) > 0 && !began[q.Name] {
			continue
		}
		if err := q.Launch(); err != nil {
			return err
		}
		if q.Name == "controller" && len(names) == 0 { // the first start of all
			if err := q.Serving(); err != nil {
				return err
			}
		}
	}
	for _, q := range p.procs {
		if len(names) > 0 && !began[q.Name] {
			continue
		}
		if err := q.Serving(); err != nil {
			return err
		}
	}
	return nil
}

// end kills all that is there.
func (p *place) end() {
	for _, q := range p.procs {
		q.End()
	}
}

// kill ends processes, as nearly at once as it can be.
func (p *place) kill(names []string) error {
	for _, n := range names {
		if err := p.proc(n).Kill(); err != nil {
			return err
		}
	}
	return nil
}

// round kills something at a moment of its own, and starts it again. It returns what was killed when, and
// how long the way back took.
func (p *place) round(rng *rand.Rand) (what string, back time.Duration, err error) {
	names := p.victims[rng.IntN(len(p.victims))]
	broker := p.proc(p.brokers[rng.IntN(len(p.brokers))])
	for _, n := range names {
		if slices.Contains(p.brokers, n) {
			broker = p.proc(n)
		}
	}
	when := p.moment(rng, broker)
	if err := p.kill(names); err != nil {
		return "", 0, err
	}
	again := ""
	switch n := rng.IntN(100); {
	case n < 20: // once more while it comes back, perhaps twice
		for range 1 + rng.IntN(2) {
			recovering := broker.When("recovery started")
			for _, n := range names {
				if err := p.proc(n).Launch(); err != nil {
					return "", 0, err
				}
			}
			if slices.Contains(names, broker.Name) && testproc.Await(recovering, time.Second) {
				again += ", again in its recovery"
			} else {
				again += ", again in its start"
			}
			pause(time.Duration(rng.Int64N(int64(15 * time.Millisecond))))
			if err := p.kill(names); err != nil {
				return "", 0, err
			}
		}
	case n < 30: // twice in a row
		if err := p.start(names...); err != nil {
			return "", 0, err
		}
		pause(time.Duration(rng.Int64N(int64(40 * time.Millisecond))))
		if err := p.kill(names); err != nil {
			return "", 0, err
		}
		again = ", again when it served"
	}
	if slices.Contains(names, broker.Name) && rng.IntN(8) == 0 {
		if err := p.forget(broker.Name); err != nil {
			return "", 0, err
		}
		again += ", without the files of its views"
	}
	began := time.Now()
	if err := p.start(names...); err != nil {
		return "", 0, err
	}
	return fmt.Sprintf("%v killed %s%s", names, when, again), time.Since(began), nil
}

// forget removes the files of all views of a broker that is down: they can be made from the log.
func (p *place) forget(broker string) error {
	for _, view := range []string{"checkpoint", "queue", "index", "dedup"} {
		if err := os.RemoveAll(filepath.Join(p.data[broker], view)); err != nil {
			return err
		}
	}
	return nil
}

// deleted is what a broker logs when retention has deleted something.
const deleted = "retention: old messages were deleted"

// retained says what retention did.
func (p *place) retained() string {
	if !p.short {
		return "nothing was to go"
	}
	n := 0
	for _, q := range p.procs {
		n += q.Count(deleted)
	}
	return fmt.Sprintf("retention deleted %d times", n)
}

// moments are lines of a broker's log at which it is killed.
var moments = []struct{ line, says string }{
	{"segment rolled", "at a segment roll"},
	{"checkpoint started", "in a checkpoint"},
	{"retention started", "in a step of retention"},
}

// moment waits until it is time to kill, and says when that is.
func (p *place) moment(rng *rand.Rand, broker *testproc.Process) string {
	pause(time.Duration(100+rng.IntN(700)) * time.Millisecond)
	if rng.IntN(5) < 3 {
		return "at random"
	}
	m := moments[rng.IntN(len(moments))]
	switch last := len(moments) - 1; {
	case !p.short && m == moments[last]:
		m = moments[0]
	case p.short && rng.IntN(2) == 0: // the step is long, and rare
		m = moments[last]
	}
	if !testproc.Await(broker.When(m.line), 2*time.Second) {
		return "at random"
	}
	pause(time.Duration(rng.Int64N(int64(6 * time.Millisecond))))
	return m.says
}

// service is what the load is for.
func (p *place) service() load.Service {
	return load.Service{Proxies: p.proxies, Names: p.names, Groups: p.brokers, Short: p.short}
}

// pause lets time pass: what is killed at random moments is to work until then.
func pause(d time.Duration) { testproc.Await(nil, d) }

// freeAddr is a loopback address on which nobody listened a moment ago.
func freeAddr() (string, error) {
	var from, to int
	if _, err := fmt.Sscanf(*portsFlag, "%d-%d", &from, &to); err != nil || from >= to {
		return "", fmt.Errorf("-ports %s: want FROM-TO", *portsFlag)
	}
	// The default is below the range from which the kernel takes the ports of clients: one of those could
	// take it before the process listens.
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", from+rand.IntN(to-from+1))
		if ln, err := net.Listen("tcp", addr); err == nil {
			return addr, ln.Close()
		}
	}
	return "", fmt.Errorf("no free port in %s", *portsFlag)
}
