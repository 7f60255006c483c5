// Command startbench is `make bench-start`: it fills a data directory through a broker in its own
// process, kills that process, starts `perigee dev` on what is left, stops it cleanly, starts it again,
// and prints how long the starts took.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

// plan is what the directory is filled with.
type plan struct {
	dir      string
	messages int // all of them together
	inFlight int // of the first group
	timers   int
	topics   int
	groups   int
	body     int // bytes
	interval time.Duration
}

func main() {
	var p plan
	flag.StringVar(&p.dir, "dir", "", "data directory; default: a temporary one, removed at the end")
	flag.IntVar(&p.messages, "messages", 10_000_000, "messages stored")
	flag.IntVar(&p.inFlight, "in-flight", 1_000_000, "messages leased")
	flag.IntVar(&p.timers, "timers", 1_000_000, "messages that wait for their time")
	flag.IntVar(&p.topics, "topics", 1, "topics")
	flag.IntVar(&p.groups, "groups", 10, "consumer groups; each has received from every topic")
	flag.IntVar(&p.body, "body", 16, "bytes of a body: small, so that the messages fit the disk")
	flag.DurationVar(&p.interval, "checkpoint-interval", 30*time.Second, "time between checkpoints while the directory is filled")
	perigee := flag.String("perigee", "bin/perigee", "the perigee binary")
	filler := flag.Bool("fill", false, "only fill --dir and be killed")
	reuse := flag.Bool("reuse", false, "start on --dir as it is")
	rounds := flag.Int("rounds", 1, "clean starts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *filler {
		err = fill(ctx, p)
	} else {
		err = run(ctx, p, *perigee, *reuse, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "startbench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, p plan, perigee string, reuse bool, rounds int) error {
	if p.dir == "" {
		dir, err := os.MkdirTemp("", "perigee-start-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		p.dir = dir
	}
	if !reuse {
		if err := fillAndDie(ctx, p); err != nil {
			return err
		}
	}
	size, err := diskBytes(p.dir)
	if err != nil {
		return err
	}
	fmt.Printf("directory: %d MiB, of them views %d MiB\n", size["all"]>>20, (size["all"]-size["log"])>>20)
	if err := printCheckpoints(filepath.Join(p.dir, "broker", "checkpoint")); err != nil {
		return err
	}
	for i := range rounds + 1 {
		what := "clean start"
		if i == 0 && !reuse {
			what = "crash start"
		}
		if err := start(ctx, perigee, p.dir, what); err != nil {
			return err
		}
	}
	return nil
}

// fillAndDie fills the directory in a process that kills itself: nothing is flushed, nothing is told.
func fillAndDie(ctx context.Context, p plan) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, "-fill", "-dir", p.dir, "-messages", fmt.Sprint(p.messages), "-in-flight", fmt.Sprint(p.inFlight), "-timers", fmt.Sprint(p.timers),
		"-topics", fmt.Sprint(p.topics), "-groups", fmt.Sprint(p.groups), "-body", fmt.Sprint(p.body), "-checkpoint-interval", p.interval.String())
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	if err := c.Run(); !killed(err) {
		return fmt.Errorf("filling %s: %w", p.dir, err)
	}
	return nil
}
