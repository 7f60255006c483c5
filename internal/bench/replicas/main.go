// Command replicas is `make bench-replicas`: it loads a broker group of three replicas and one of a lone broker in
// turns, each with a controller and a proxy of its own, all of them processes of this machine, and prints what three
// copies cost: messages per second, and bytes of log per message on each replica, against the lone broker.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perigee-mq/perigee/internal/bench"
	"github.com/perigee-mq/perigee/internal/testport"
	"github.com/perigee-mq/perigee/internal/testproc"
)

func main() {
	perigee := flag.String("perigee", "bin/perigee", "the perigee binary")
	rounds := flag.Int("rounds", 5, "rounds; each measures both groups once")
	span := flag.Duration("span", 3*time.Second, "time of one measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *perigee, *rounds, *span); err != nil {
		fmt.Fprintln(os.Stderr, "replicas:", err)
		os.Exit(1)
	}
}

// group is a broker group with all that belongs to it.
type group struct {
	processes []*testproc.Process
	brokers   []string // HTTP addresses
	proxy     string
	began     []int64 // ends of the logs before the load
	stored    int64
	rates     []float64
}

// begin starts a group of n replicas.
func begin(perigee, dir string, n int) (*group, error) {
	g := &group{}
	var addrs []string
	for range 3 + 2*n {
		a, err := testport.Find()
		if err != nil {
			return g, err
		}
		addrs = append(addrs, a)
	}
	start := func(name string, args ...string) error {
		p := testproc.New(name, filepath.Join(dir, name+".log"), []string{perigee}, args)
		g.processes = append(g.processes, p)
		if err := errors.Join(p.Launch(), p.Serving()); err != nil {
			log, _ := os.ReadFile(p.Log)
			return fmt.Errorf("%w\n%s", err, log)
		}
		return nil
	}
	controller, web := addrs[0], addrs[1]
	g.proxy = addrs[2]
	if err := start("controller", "controller", "--data-dir", filepath.Join(dir, "c"), "--addr", controller, "--raft-addr", "", "--http-addr", ""); err != nil {
		return g, err
	}
	for i := range n {
		addr, web := addrs[3+2*i], addrs[4+2*i]
		g.brokers = append(g.brokers, web)
		id := strconv.Itoa(i + 1)
		if err := start("broker"+id, "broker", "--data-dir", filepath.Join(dir, "b"+id), "--group", "bench", "--id", id, "--addr", addr, "--http-addr", web, "--controller", controller); err != nil {
			return g, err
		}
	}
	return g, start("proxy", "proxy", "--grpc-addr", g.proxy, "--http-addr", web, "--controller", controller, "--auto-create")
}

func (g *group) end() {
	for _, p := range g.processes {
		p.End()
	}
}

// load sends for a while, from 64 callers.
func (g *group) load(ctx context.Context, span time.Duration, counts bool) error {
	r, err := bench.Run(ctx, bench.Options{Kind: bench.Send, Server: g.proxy, Topic: "bench", Time: span})
	if err != nil {
		return err
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d sends failed: %s", r.Failed, r.FirstError)
	}
	if counts {
		g.stored += r.Sent
		g.rates = append(g.rates, float64(r.Sent)/r.Took.Seconds())
	}
	return nil
}

// ends are the ends of the logs of all replicas.
func (g *group) ends() (ends []int64, err error) {
	for _, addr := range g.brokers {
		end, err := written(addr)
		if err != nil {
			return nil, err
		}
		ends = append(ends, end)
	}
	return ends, nil
}

// settled waits until all logs of the group end at one place, and returns that of each.
func (g *group) settled() ([]int64, error) {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-look.C {
		ends, err := g.ends()
		if err != nil {
			return nil, err
		}
		if slices.Min(ends) == slices.Max(ends) {
			return ends, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("a minute after the load the logs of the replicas end at %v", ends)
		}
	}
}

func written(addr string) (int64, error) {
	r, err := http.Get("http://" + addr + "/metrics")
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Body.Close() }()
	for sc := bufio.NewScanner(r.Body); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "perigee_log_written_bytes "); ok {
			f, err := strconv.ParseFloat(v, 64)
			return int64(f), err
		}
	}
	return 0, fmt.Errorf("%s does not tell the end of its log", addr)
}

func run(ctx context.Context, perigee string, rounds int, span time.Duration) error {
	dir, err := os.MkdirTemp("", "perigee-replicas-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var groups []*group
	for _, n := range []int{1, 3} {
		sub := filepath.Join(dir, strconv.Itoa(n))
		if err := os.Mkdir(sub, 0o755); err != nil {
			return err
		}
		g, err := begin(perigee, sub, n)
		defer g.end()
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	for _, g := range groups { // to warm up, and to be in sync
		if err := g.load(ctx, 4*time.Second, false); err != nil {
			return err
		}
		if g.began, err = g.ends(); err != nil {
			return err
		}
	}
	var ratios []float64
	for i := range rounds {
		for _, g := range groups {
			if err := g.load(ctx, span, true); err != nil {
				return err
			}
		}
		lone, three := groups[0].rates[i], groups[1].rates[i]
		ratios = append(ratios, three/lone)
		fmt.Printf("round %d/%d  one replica %8.0f msg/s   three replicas %8.0f msg/s   ratio %.2f\n", i+1, rounds, lone, three, three/lone)
	}
	slices.Sort(ratios)
	fmt.Printf("sends per second, three replicas against one, 64 callers, all processes on this machine: %.2f (%.2f..%.2f)\n", ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1])
	return bytes(groups)
}

// bytes prints the log per message.
func bytes(groups []*group) error {
	lone := 0.0
	for _, g := range groups {
		ends, err := g.settled()
		if err != nil {
			return err
		}
		for i, end := range ends {
			per := float64(end-g.began[i]) / float64(g.stored)
			if lone == 0 {
				lone = per
			}
			fmt.Printf("replica %d of %d: %.1f bytes of log per message, %.3f of the lone broker's\n", i+1, len(ends), per, per/lone)
		}
	}
	return nil
}
