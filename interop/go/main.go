// Command interop runs the official Go client of Apache RocketMQ 5, unmodified,
// against a server and tells which of the checks of ../README.md it passes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// checkMax ends a check that hangs: this client waits without end in places.
const checkMax = 55 * time.Second

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:8081", "HOST:PORT to produce at, and after a comma one to consume at")
	run := flag.String("run", "1", "the end of the names of the consumer groups")
	withTLS := flag.Bool("tls", true, "the port speaks TLS too")
	steady := flag.Bool("steady", false, "no checks: send and receive until the input ends, and print what comes of it")
	half := flag.String("half", "", "only send a message in a transaction, with this as its property try, and print its id")
	flag.Parse()
	configureClient()

	producing, consuming, two := strings.Cut(*endpoints, ",")
	if !two {
		consuming = producing
	}
	l := &lab{producing: producing, consuming: consuming, run: *run}
	if *half != "" {
		rmq.EnableSsl = false
		if err := within(checkMax, func() error { return l.sendHalf(*half) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if *steady {
		rmq.EnableSsl = false
		err := within(checkMax, l.start)
		if err == nil {
			err = l.steady()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // a stop in order waits for pending polls
	}
	var r report

	// TLS is a switch of the whole process, looked at when a connection is made:
	// this check comes first and alone.
	rmq.EnableSsl = true
	if *withTLS {
		r.check("tls", l.tls)
	} else {
		r.lacks("tls", "left out with -tls=false")
	}
	rmq.EnableSsl = false

	if err := within(checkMax, l.start); err != nil {
		r.fail("start", err)
		os.Exit(r.end())
	}
	for name, lacking := range map[string]string{
		"recall":   "the client cannot recall",
		"priority": "the client sets no priority",
		"lite":     "the client has no lite consumer",
		"batch":    "the client sends one message in a request",
	} {
		r.lacks(name, lacking)
	}
	var wg sync.WaitGroup
	for name, check := range map[string]func() error{
		"send-100":             l.sendHundred,
		"tag-filter":           l.tagFilter,
		"sql-filter":           l.sqlFilter,
		"no-ack":               l.noAck,
		"change-invisible":     l.changeInvisible,
		"push-consume":         l.pushConsume,
		"long-poll-wake":       l.longPollWake,
		"empty-poll":           l.emptyPoll,
		"unknown-topic":        l.unknownTopic,
		"fifo":                 l.fifo,
		"delay":                l.delay,
		"dead-letter":          l.deadLetter,
		"transaction-commit":   l.transactionCommit,
		"transaction-rollback": l.transactionRollback,
		"transaction-check":    l.transactionCheck,
		"transaction-restart":  l.transactionRestart,
	} {
		wg.Go(func() { r.check(name, check) })
	}
	wg.Wait()
	os.Exit(r.end())
}

// configureClient keeps the client's second log out of /tmp, lets it receive a
// body of 4 MiB, since by default it takes gRPC messages of that size, and notes
// broken streams, which it keeps to its log. It offers all this only by its variables.
func configureClient() {
	newClient := rmq.NewRpcClient
	rmq.NewRpcClient = func(target string, opts ...rmq.RpcClientOption) (rmq.RpcClient, error) {
		return newClient(target, append(opts, rmq.WithRpcClientConnOption(
			rmq.WithZapLogger(zap.NewNop()),
			rmq.WithDialOptions(
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(8<<20)),
				grpc.WithChainStreamInterceptor(noteBroken),
			),
		))...)
	}
}

// report prints and counts results; checks report concurrently.
type report struct {
	mu                      sync.Mutex // guards the counters and the output
	passed, failed, skipped int
}

// check runs one check and reports its end, or that there was none in time. One
// that met errLost starts anew.
func (r *report) check(name string, check func() error) {
	begin := time.Now()
	err := within(checkMax, func() error {
		err := check()
		for tries := 1; tries < 3 && errors.Is(err, errLost); tries++ {
			err = check()
		}
		return err
	})
	if err != nil {
		r.fail(name, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed++
	fmt.Printf("ok   %s (%d ms)\n", name, time.Since(begin).Milliseconds())
}

func (r *report) fail(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	fmt.Printf("FAIL %s: %v\n", name, err)
}

func (r *report) lacks(name, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped++
	fmt.Printf("n/a  %s: %s\n", name, why)
}

// end prints the counts and returns the exit status.
func (r *report) end() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	if r.failed > 0 {
		return 1
	}
	return 0
}

// within fails when f panics, or takes longer than a time.
func within(d time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				done <- fmt.Errorf("panic: %v", p)
			}
		}()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(d):
		return fmt.Errorf("no end after %v", d)
	}
}
