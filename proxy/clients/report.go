package clients

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// Brokers finds the broker that leads a shard.
type Brokers interface {
	// Broker returns the broker and the highest epoch seen of its shard.
	Broker(shard brokerapi.ShardID) (brokerapi.Broker, brokerapi.Epoch, error)
}

// Report configures Run. The zero value of a field means its default.
type Report struct {
	Brokers Brokers                    // required
	Shards  func() []brokerapi.ShardID // all shards; required
	// Every is the time between two reports. Default 5 s; a session ends 60 s after the last one.
	Every time.Duration
	Log   *slog.Logger // default: discard
}

const (
	reportBatch   = 1000             // client ids in one call
	reportTimeout = 3 * time.Second  // of one shard
	reportBack    = 30 * time.Second // no older sign of life is reported
)

func (r Report) withDefaults() Report {
	if r.Every == 0 {
		r.Every = 5 * time.Second
	}
	if r.Log == nil {
		r.Log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Run forgets silent clients and reports the living to every broker until ctx ends. A broker of whose
// clients nobody was heard from is not called; one that could not be reached is told the next time.
func (t *Table) Run(ctx context.Context, r Report) error {
	r = r.withDefaults()
	reported := map[brokerapi.ShardID]time.Time{} // start of the last report that got through
	ticker := time.NewTicker(r.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := time.Now()
		t.Expire(now)
		t.reportAll(ctx, r, now, reported)
	}
}

// reportAll reports to all shards side by side and waits for them.
func (t *Table) reportAll(ctx context.Context, r Report, now time.Time, reported map[brokerapi.ShardID]time.Time) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	shards := r.Shards()
	through := make([]bool, len(shards))
	var wg sync.WaitGroup
	for i, shard := range shards {
		since := now.Add(-reportBack)
		if last, ok := reported[shard]; ok && last.After(since) {
			since = last
		}
		alive := t.Alive(since)
		if len(alive) == 0 {
			continue
		}
		wg.Go(func() {
			err := report(ctx, r.Brokers, shard, alive)
			if through[i] = err == nil; !through[i] {
				r.Log.LogAttrs(ctx, slog.LevelDebug, "clients not reported", slog.Uint64("shard", uint64(shard)), slog.Any("error", err))
			}
		})
	}
	wg.Wait()
	for i, shard := range shards {
		if through[i] {
			reported[shard] = now
		}
	}
}

func report(ctx context.Context, brokers Brokers, shard brokerapi.ShardID, alive []string) error {
	b, _, err := brokers.Broker(shard)
	if err != nil {
		return err
	}
	for len(alive) > 0 {
		n := min(reportBatch, len(alive))
		if err := b.Alive(ctx, alive[:n]); err != nil {
			return err
		}
		alive = alive[n:]
	}
	return nil
}

// Goodbye ends the sessions of a client at every shard: it says that it is going away. What cannot
// be reached ends them itself when no report comes.
func Goodbye(ctx context.Context, brokers Brokers, shards []brokerapi.ShardID, client string) {
	var wg sync.WaitGroup
	for _, shard := range shards {
		wg.Go(func() {
			if b, _, err := brokers.Broker(shard); err == nil {
				_ = b.EndSession(ctx, client) // a session that is not ended so ends by itself
			}
		})
	}
	wg.Wait()
}
