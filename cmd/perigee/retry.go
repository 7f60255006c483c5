package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	controllerv1 "github.com/perigee-mq/perigee/api/perigee/controller/v1"
	"github.com/perigee-mq/perigee/controller/state"
)

// defaultRetry is the policy of groups that state none.
var defaultRetry = []time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute, 5 * time.Minute, 6 * time.Minute, 7 * time.Minute,
	8 * time.Minute, 9 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
}

// setRetry puts a policy that somebody wrote into a request.
func setRetry(what, text string, req *controllerv1.PutGroupRequest) error {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "default":
		if rest == "" {
			req.BackoffMs = milliseconds(defaultRetry)
			return nil
		}
	case "list":
		delays, err := durations(what, strings.Split(rest, ","))
		if err != nil {
			return err
		}
		if len(delays) > state.BackoffMax {
			return usageError("%s: %d delays, at most %d are possible", what, len(delays), state.BackoffMax)
		}
		req.BackoffMs = milliseconds(delays)
		return nil
	case "exponential":
		parts := strings.Split(rest, ",")
		if len(parts) != 3 {
			break
		}
		ends, err := durations(what, parts[:2])
		if err != nil {
			return err
		}
		factor, err := strconv.ParseFloat(strings.TrimSpace(parts[2]), 64)
		if err != nil || factor < 1 || factor > state.GrowthMax/1000 {
			return usageError("%s: factor %q: use a number from 1 to %d", what, parts[2], state.GrowthMax/1000)
		}
		req.Exponential = &controllerv1.Exponential{InitialMs: ends[0].Milliseconds(), MaxMs: ends[1].Milliseconds(), MultiplierMilli: int32(math.Round(factor * 1000))}
		return nil
	}
	return usageError("%s %q: use default, list:1s,5s,1m or exponential:1s,2h,2", what, text)
}

// durations reads delays.
func durations(what string, texts []string) ([]time.Duration, error) {
	var all []time.Duration
	for _, text := range texts {
		d, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil || d < 0 || d > state.BackoffMaxMS*time.Millisecond {
			return nil, usageError("%s: delay %q: use one like 500ms, 10s or 2h, at most %s", what, text, state.BackoffMaxMS*time.Millisecond)
		}
		all = append(all, d)
	}
	return all, nil
}

func milliseconds(all []time.Duration) []int64 {
	ms := make([]int64, len(all))
	for i, d := range all {
		ms[i] = d.Milliseconds()
	}
	return ms
}

// retryName is the policy of a group as it is written.
func retryName(g *controllerv1.Group) string {
	if x := g.GetExponential(); x != nil {
		return fmt.Sprintf("exponential:%s,%s,%v", brief(x.GetInitialMs()), brief(x.GetMaxMs()), float64(x.GetMultiplierMilli())/1000)
	}
	if len(g.GetBackoffMs()) == 0 || slices.Equal(g.GetBackoffMs(), milliseconds(defaultRetry)) {
		return "default"
	}
	var texts []string
	for _, ms := range g.GetBackoffMs() {
		texts = append(texts, brief(ms))
	}
	return "list:" + strings.Join(texts, ",")
}

// brief is a duration without the parts that are 0.
func brief(ms int64) string {
	s := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
