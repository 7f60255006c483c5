package engine

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/broker/retain"
	"github.com/perigee-mq/perigee/internal/vfs/memfs"
	"github.com/perigee-mq/perigee/store/record"
)

// kinds counts the records of the log by type.
func (b *bench) kinds() map[record.Type]int {
	b.t.Helper()
	n := map[record.Type]int{}
	err := b.engine.log.Scan(b.engine.log.First(), func(r record.Record) error {
		n[r.Type]++
		return nil
	})
	require.NoError(b.t, err)
	return n
}

// TestRetentionTriesAgain: a step whose checkpoint cannot be saved is finished by the next ones without a record that
// says nothing new; also one that begins anew, as after a restart, writes no TRIM twice.
//
//fault:storage checkpoints cannot be saved for long while old messages should go => nothing is deleted, each try after the first writes nothing to the log, one log line comes in ten minutes, a metric and doctor tell; then it goes on by itself
func TestRetentionTriesAgain(t *testing.T) {
	b := newBench(t, Options{Retention: RetentionOptions{Interval: time.Hour}})
	h := &hookFS{FS: memfs.New()}
	b.fs = h
	logs := new(lines)
	b.opt.Log = slog.New(logs)
	b.mustOpen()
	b.define()
	b.mustSend(topicSync, "held")
	require.Len(t, b.mustPop(topicSync, groupA), 1)
	b.fill(topicSync)
	b.fill(topicSync)
	require.NoError(t, b.engine.log.Sync())
	down := errors.New("the disk is away")
	h.set(func(op, name string) error {
		if op == "create" && strings.Contains(name, "checkpoint") {
			return down
		}
		return nil
	})
	try := func() error {
		_, err := b.engine.Retain(t.Context(), retain.Limits{Age: time.Minute})
		b.engine.keeper.judge(err)
		return err
	}
	first := b.engine.log.First()
	require.ErrorIs(t, try(), down)
	at, was := b.engine.log.Written(), b.kinds()
	require.Positive(t, was[record.TypeTrim])
	require.Equal(t, 1, must(b.engine.Retention(t.Context())).Held)
	for range 25 {
		b.clock.advance(time.Minute)
		require.ErrorIs(t, try(), down)
		require.Equal(t, at, b.engine.log.Written())
	}
	s := must(b.engine.Retention(t.Context()))
	require.True(t, s.Failing)
	require.Equal(t, (25 * time.Minute).Milliseconds(), s.FailingMS)
	require.EqualValues(t, 26, s.Failures)
	require.Equal(t, 3, logs.count("retention cannot delete old messages"), "at once, and every ten minutes")

	b.engine.keeper.left = nil
	require.ErrorIs(t, try(), down)
	now := b.kinds()
	require.Equal(t, was[record.TypeTrim], now[record.TypeTrim])
	require.Equal(t, was[record.TypeMove], now[record.TypeMove])
	require.Equal(t, first, b.engine.log.First())

	h.set(func(string, string) error { return nil })
	at = b.engine.log.Written()
	require.NoError(t, try())
	require.Equal(t, at, b.engine.log.Written())
	require.Greater(t, b.engine.log.First(), first)
	require.Equal(t, 1, logs.count("retention works again"))
	require.False(t, must(b.engine.Retention(t.Context())).Failing)
	b.clock.advance(2 * time.Hour)
	require.Contains(t, b.drain(topicSync, groupA), "held")
}
