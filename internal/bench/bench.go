// Package bench is the load generator behind `perigee bench` and `make bench`: real gRPC calls with
// requests that were encoded beforehand, so that the load costs little and the server is what is
// measured.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// Kind is what a load does.
type Kind string

// Kinds of load.
const (
	Send    Kind = "send"    // send messages
	Receive Kind = "receive" // receive and acknowledge what is there
	Mix     Kind = "mix"     // half of the callers send, the others receive
)

// Options describes a load. The zero value of a field means its default.
type Options struct {
	Kind    Kind
	Server  string // gRPC address
	Topic   string
	Group   string        // for receives
	Callers int           // calls at a time; default 64
	Conns   int           // connections; default 4
	Size    int           // bytes of a body; default 1024
	Batch   int           // messages per send, at most per receive; default 1 (receive: 32)
	Count   int64         // stop after so many messages; 0: Duration decides
	Time    time.Duration // stop after; default 10 s
	Timeout time.Duration // deadline of a call; default 3 s (receive: 5 s + 3 s)
	// Progress gets a line per second; nil: none.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	set := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	set(&o.Callers, 64)
	set(&o.Conns, 4)
	set(&o.Size, 1024)
	if o.Batch <= 0 {
		o.Batch = 1
		if o.Kind == Receive {
			o.Batch = 32
		}
	}
	if o.Time <= 0 {
		o.Time = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 3 * time.Second
	}
	return o
}

// Result is what a load did.
type Result struct {
	Sent, Received, Acked int64 // messages
	Calls                 int64 // send and receive calls that succeeded
	Failed                int64
	FirstError            string
	Took                  time.Duration
	P50, P99, Max         time.Duration // of send calls; of receive calls that returned something, if nothing was sent
}

// Run makes the load and returns what it did. It ends at the bound that comes first, or with ctx.
func Run(ctx context.Context, o Options) (Result, error) {
	o = o.withDefaults()
	conns := make([]*grpc.ClientConn, o.Conns)
	for i := range conns {
		c, err := dial(o.Server)
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = c.Close() }()
		conns[i] = c
	}
	ctx, cancel := context.WithTimeout(ctx, o.Time)
	defer cancel()
	l := &load{o: o, stop: cancel, run: runs.Add(1)}
	began := time.Now()
	var wg sync.WaitGroup
	for i := range o.Callers {
		w := &worker{l: l, conn: conns[i%len(conns)], id: i, hist: hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)}
		l.workers = append(l.workers, w)
		wg.Go(func() { w.run(ctx) })
	}
	var progress sync.WaitGroup
	done := make(chan struct{})
	if o.Progress != nil {
		progress.Go(func() { l.report(done, began) })
	}
	wg.Wait()
	close(done)
	progress.Wait()
	return l.result(time.Since(began)), nil
}

// load is what the callers share.
type load struct {
	o       Options
	run     uint64
	stop    context.CancelFunc
	workers []*worker

	taken                                atomic.Int64 // messages claimed against Count
	sent, received, acked, calls, misses atomic.Int64
	first                                sync.Once
	firstError                           string
}

// claim reserves n messages of the count, false when there are no more.
func (l *load) claim(n int) bool {
	return l.o.Count == 0 || l.taken.Add(int64(n)) <= l.o.Count+int64(n)-1
}

func (l *load) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the end of the run
	}
	l.misses.Add(1)
	l.first.Do(func() { l.firstError = err.Error() })
}

func (l *load) report(done chan struct{}, began time.Time) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var sent, received int64
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		s, r := l.sent.Load(), l.received.Load()
		_, _ = fmt.Fprintf(l.o.Progress, "%4.0f s  sent %d/s  received %d/s  failed %d\n", time.Since(began).Seconds(), s-sent, r-received, l.misses.Load())
		sent, received = s, r
	}
}

func (l *load) result(took time.Duration) Result {
	all := hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)
	for _, w := range l.workers {
		all.Merge(w.hist)
	}
	us := func(v int64) time.Duration { return time.Duration(v) * time.Microsecond }
	return Result{
		Sent: l.sent.Load(), Received: l.received.Load(), Acked: l.acked.Load(), Calls: l.calls.Load(), Failed: l.misses.Load(), FirstError: l.firstError,
		Took: took, P50: us(all.ValueAtQuantile(50)), P99: us(all.ValueAtQuantile(99)), Max: us(all.Max()),
	}
}

// dial opens a connection whose calls carry bytes.
func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(256<<20), grpc.MaxCallSendMsgSize(256<<20)))
}

// rawCodec passes bytes through.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errors.New("bench: a request that is no bytes")
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	p, ok := v.(*[]byte)
	if !ok {
		return errors.New("bench: a reply that is no bytes")
	}
	*p = data.Materialize()
	return nil
}
