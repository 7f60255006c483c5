package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What is measured. Names of metrics are those of /metrics, summed over their labels.
const (
	anonMiB    = "anon_mib" // RssAnon
	fds        = "fds"
	threads    = "threads"
	logMiB     = "log_mib"
	viewsMiB   = "views_mib" // files beside the log, raft's included
	files      = "files"
	openHere   = "unacked" // messages of the ledger that are not done
	behind     = "checkpoint_behind_mib"
	perQueue   = "extents_per_queue" // lite topics, which are queues, live for 15 minutes at least
	goroutines = "go_goroutines"
	heap       = "go_memstats_heap_alloc_bytes"
	segments   = "perigee_log_segments"
	lag        = "rocketmq_consumer_lag_messages"
	inFlight   = "rocketmq_consumer_inflight_messages"
	extents    = "perigee_queue_extents"
	queues     = "perigee_queues"
	indexed    = "perigee_index_entries"
	remembered = "perigee_duplicate_entries"
	timers     = "rocketmq_timing_messages"
	halves     = "rocketmq_half_messages"
	topics     = "rocketmq_topic_number"
	liteTopics = "perigee_lite_topics"
	knownHere  = "perigee_proxy_clients"
	sessions   = "perigee_client_sessions"
	receives   = "perigee_proxy_receives_waiting"
	writtenPos = "perigee_log_written_bytes"
	savedPos   = "perigee_checkpoint_position_bytes"
)

// kept are the metrics that a sample has.
var kept = []string{
	goroutines, heap, segments, lag, inFlight, extents, queues, indexed, remembered, timers, halves, topics, liteTopics, knownHere, sessions, receives, writtenPos, savedPos,
}

// rules say what may not go up. What the load itself makes more of for a while has room: lite topics live for
// 15 minutes, the ids of messages are remembered for ten.
var rules = []rule{
	{name: anonMiB, share: 0.15, least: 30},
	{name: heap, share: 0.5, least: 48 << 20},
	{name: goroutines, share: 0.1, least: 20},
	{name: fds, share: 0.1, least: 10},
	{name: threads, share: 0.1, least: 6},
	{name: logMiB, share: 0.15, least: 16},
	{name: viewsMiB, share: 0.3, least: 16},
	{name: files, share: 0.2, least: 12},
	{name: segments, share: 0.15, least: 3},
	{name: behind, share: 0.5, least: 32},
	{name: openHere, share: 0.5, least: 300},
	{name: lag, share: 0.5, least: 400},
	{name: inFlight, share: 0.5, least: 300},
	{name: perQueue, share: 0.3, least: 1},
	{name: indexed, share: 0.2, least: 200_000}, // it goes by files of 65,536
	{name: timers, share: 0.3, least: 500},
	{name: halves, share: 0.3, least: 100},
	{name: topics, share: 0.2, least: 6},
	{name: knownHere, share: 0.3, least: 40},
	{name: sessions, share: 0.3, least: 40},
	{name: receives, share: 0.3, least: 20},
}

// server is a perigee dev process.
type server struct {
	pid       int
	dir, http string
}

// measure takes a sample.
func (s *server) measure(ctx context.Context, at time.Duration, l *ledger) (sample, error) {
	v := map[string]float64{openHere: float64(l.left())}
	if err := s.status(v); err != nil {
		return sample{}, err
	}
	if err := s.disk(v); err != nil {
		return sample{}, err
	}
	if err := s.metrics(ctx, v); err != nil {
		return sample{}, err
	}
	if _, ok := v[savedPos]; ok {
		v[behind] = (v[writtenPos] - v[savedPos]) / (1 << 20)
	}
	if v[queues] > 0 {
		v[perQueue] = v[extents] / v[queues]
	}
	return sample{at: at, values: v}, nil
}

func (s *server) status(v map[string]float64) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		var n float64
		if _, err := fmt.Sscanf(line, "RssAnon: %f kB", &n); err == nil {
			v[anonMiB] = n / 1024
		}
		if _, err := fmt.Sscanf(line, "Threads: %f", &n); err == nil {
			v[threads] = n
		}
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid))
	v[fds] = float64(len(open))
	return err
}

// disk adds what the files really take: those of the log are made in their full length.
func (s *server) disk(v map[string]float64) error {
	return filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err != nil {
			return ignoreGone(err)
		}
		size := float64(info.Size())
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			size = float64(st.Blocks) * 512
		}
		what := viewsMiB
		if filepath.Base(filepath.Dir(path)) == "log" {
			what = logMiB
		}
		v[what] += size / (1 << 20)
		v[files]++
		return nil
	})
}

func ignoreGone(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

func (s *server) metrics(ctx context.Context, v map[string]float64) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	sums := map[string]float64{}
	for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
		line := sc.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		n, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(line[:at], "{")
		sums[name] += n
	}
	for _, name := range kept {
		if n, ok := sums[name]; ok {
			v[name] = n
		}
	}
	return nil
}
