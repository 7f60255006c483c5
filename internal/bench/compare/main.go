// Command compare is `make bench`: it starts the bare gRPC server and Perigee, loads them in turns in
// one run, and prints server CPU per message as ratios to G, the CPU of a bare unary call.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/perigee-mq/perigee/internal/bench"
)

func main() {
	perigee := flag.String("perigee", "bin/perigee", "the perigee binary")
	bare := flag.String("bare", "", "the bare server's binary")
	rounds := flag.Int("rounds", 5, "rounds; each measures every row once")
	span := flag.Duration("span", 2*time.Second, "time of one measurement")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *perigee, *bare, *rounds, *span, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// row is one line of the table: a load on a server.
type row struct {
	name   string
	server *process
	load   bench.Options
	fill   int // messages to store before a measurement
	got    []measure
}

// measure is one measurement.
type measure struct {
	CPU       float64 // server CPU µs per message
	G         float64 // of the same round
	PerSecond float64
	P50, P99  time.Duration
	Failed    int64
	Others    float64 // cores used by other processes than server and load
}

func run(ctx context.Context, perigee, bare string, rounds int, span time.Duration, asJSON bool) error {
	dir, err := os.MkdirTemp("", "perigee-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	servers, err := startAll(ctx, perigee, bare, dir)
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	if err != nil {
		return err
	}
	rows := table(servers, span)
	for i := range rounds + 1 { // the first round warms up
		g := 0.0
		for j := range rows {
			m, err := rows[j].measure(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", rows[j].name, err)
			}
			if j == 0 {
				g = m.CPU
			}
			m.G = g
			if i > 0 {
				rows[j].got = append(rows[j].got, m)
			}
			fmt.Fprintf(os.Stderr, "round %d/%d  %-34s %7.2f us\n", i, rounds, rows[j].name, m.CPU)
		}
	}
	if asJSON {
		return printJSON(rows, servers)
	}
	print(rows, servers)
	return nil
}

// table lists what is measured; the first row is G.
func table(s map[string]*process, span time.Duration) []row {
	send := bench.Options{Kind: bench.Send, Topic: "bench", Time: span}
	batch := send
	batch.Batch = 32
	one := send
	one.Callers, one.Conns = 1, 1
	recv := bench.Options{Kind: bench.Receive, Topic: "bench", Group: "bench", Time: span, Callers: 16}
	const fill = 200000
	return []row{
		{name: "bare unary call (G)", server: s["bare"], load: send},
		{name: "send, async flush", server: s["async"], load: send},
		{name: "send, sync flush", server: s["sync"], load: send},
		{name: "send, 32 a request, async", server: s["async"], load: batch},
		{name: "receive + ack in 32s, async", server: s["async"], load: recv, fill: fill},
		{name: "receive + ack in 32s, sync", server: s["sync"], load: recv, fill: fill},
		{name: "bare unary call, 1 caller", server: s["bare"], load: one},
		{name: "send, async flush, 1 caller", server: s["async"], load: one},
	}
}

func (r *row) measure(ctx context.Context) (measure, error) {
	o := r.load
	o.Server = r.server.addr
	if r.fill > 0 {
		f := bench.Options{Kind: bench.Send, Server: o.Server, Topic: o.Topic, Batch: 32, Callers: 16, Count: int64(r.fill), Time: time.Minute}
		if _, err := bench.Run(ctx, f); err != nil {
			return measure{}, err
		}
	}
	cpu, own, all, began := r.server.cpu(), selfCPU(), machineCPU(), time.Now()
	res, err := bench.Run(ctx, o)
	if err != nil {
		return measure{}, err
	}
	took := time.Since(began)
	used, mine := r.server.cpu()-cpu, selfCPU()-own
	n := res.Sent + res.Received
	if n == 0 {
		return measure{}, fmt.Errorf("no message went through: %s", res.FirstError)
	}
	return measure{
		CPU: float64(used.Nanoseconds()) / 1e3 / float64(n), PerSecond: float64(n) / res.Took.Seconds(), P50: res.P50, P99: res.P99, Failed: res.Failed,
		Others: max(0, (machineCPU()-all-used-mine).Seconds()/took.Seconds()),
	}, nil
}

// spread is the smallest, middle and largest of some figures.
func spread(got []measure, f func(measure) float64) (lo, mid, hi float64) {
	var v []float64
	for _, m := range got {
		v = append(v, f(m))
	}
	slices.Sort(v)
	return v[0], v[len(v)/2], v[len(v)-1]
}

func print(rows []row, servers map[string]*process) {
	fmt.Printf("%-34s %10s %22s %10s %9s %9s %7s %7s\n", "", "us CPU/msg", "ratio to G (min..max)", "msg/s", "p50 us", "p99 us", "failed", "others")
	for _, r := range rows {
		_, cpu, _ := spread(r.got, func(m measure) float64 { return m.CPU })
		lo, mid, hi := spread(r.got, func(m measure) float64 { return m.CPU / m.G })
		_, rate, _ := spread(r.got, func(m measure) float64 { return m.PerSecond })
		_, p50, _ := spread(r.got, func(m measure) float64 { return float64(m.P50.Microseconds()) })
		_, p99, _ := spread(r.got, func(m measure) float64 { return float64(m.P99.Microseconds()) })
		_, _, failed := spread(r.got, func(m measure) float64 { return float64(m.Failed) })
		_, others, _ := spread(r.got, func(m measure) float64 { return m.Others })
		fmt.Printf("%-34s %10.2f %8.2f (%.2f..%.2f) %12.0f %9.0f %9.0f %7.0f %7.2f\n", r.name, cpu, mid, lo, hi, rate, p50, p99, failed, others)
	}
	for _, name := range []string{"async", "sync"} {
		s := servers[name]
		fmt.Printf("perigee dev (%s): ready after %s, RssAnon %s idle, %s after the load\n", name, s.ready.Round(time.Millisecond), mib(s.idle), mib(s.anon()))
	}
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func printJSON(rows []row, servers map[string]*process) error {
	type line struct {
		Name     string    `json:"name"`
		Measures []measure `json:"measures"`
	}
	type memory struct {
		ReadySeconds float64 `json:"ready_seconds"`
		IdleBytes    int64   `json:"rss_anon_idle_bytes"`
		LoadedBytes  int64   `json:"rss_anon_loaded_bytes"`
	}
	out := struct {
		Rows    []line            `json:"rows"`
		Servers map[string]memory `json:"servers"`
	}{Servers: map[string]memory{}}
	for _, r := range rows {
		out.Rows = append(out.Rows, line{r.name, r.got})
	}
	for name, s := range servers {
		out.Servers[name] = memory{s.ready.Seconds(), s.idle, s.anon()}
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
