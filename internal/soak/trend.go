package main

import (
	"fmt"
	"slices"
	"time"
)

// sample is what was measured at one time, by name. What could not be measured is not there.
type sample struct {
	at     time.Duration // since the begin
	values map[string]float64
}

// rule says how much a value may go up. Both bounds must be passed before that is a fault: a small value
// may double, a large one may move.
type rule struct {
	name  string
	share float64 // of its level
	least float64 // in its own unit
}

// windows is in how many parts the second half of a run is cut.
const windows = 4

// judge finds values that go up: those whose line through the second half of the run rises by more than the
// rule lets them, with the last parts above the first ones. The first half is for what fills up. It is a
// function of its arguments alone.
func judge(samples []sample, rules []rule) (faults []string) {
	if len(samples) == 0 {
		return []string{"nothing was measured"}
	}
	half := samples[len(samples)-1].at / 2
	for _, r := range rules {
		var at, value []float64
		for _, s := range samples {
			if v, ok := s.values[r.name]; ok && s.at >= half {
				at, value = append(at, s.at.Seconds()), append(value, v)
			}
		}
		if len(value) < 2*windows {
			faults = append(faults, fmt.Sprintf("%s: only %d measurements in the second half", r.name, len(value)))
			continue
		}
		level, rise := median(value), slope(at, value)*(at[len(at)-1]-at[0])
		lows := minima(value)
		if rise > max(r.share*level, r.least) && lows[windows-1] > lows[0] && lows[windows-1]-lows[0] > max(r.share*level, r.least)/2 {
			faults = append(faults, fmt.Sprintf("%s goes up: by %.4g in %.0f s, at a level of %.4g; lows %.4g", r.name, rise, at[len(at)-1]-at[0], level, lows))
		}
	}
	return faults
}

// slope is that of the line with the least squares.
func slope(x, y []float64) float64 {
	mx, my := mean(x), mean(y)
	var xy, xx float64
	for i := range x {
		xy += (x[i] - mx) * (y[i] - my)
		xx += (x[i] - mx) * (x[i] - mx)
	}
	if xx == 0 {
		return 0
	}
	return xy / xx
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// minima are the least values of each window: what a garbage collector or a retention does not get below.
func minima(v []float64) []float64 {
	var out []float64
	for i := range windows {
		out = append(out, slices.Min(v[i*len(v)/windows:(i+1)*len(v)/windows]))
	}
	return out
}
