package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func run(n int, f func(i int) float64) []sample {
	var out []sample
	for i := range n {
		out = append(out, sample{time.Duration(i) * 5 * time.Second, map[string]float64{"x": f(i)}})
	}
	return out
}

func TestJudge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	noise := func() float64 { return rng.Float64() }
	for name, c := range map[string]struct {
		f    func(i int) float64
		rule rule
		bad  bool
	}{
		"flat":                  {func(int) float64 { return 100 }, rule{share: 0.1}, false},
		"none":                  {func(int) float64 { return 0 }, rule{share: 0.1}, false},
		"noise":                 {func(int) float64 { return 100 + 50*noise() }, rule{share: 0.1}, false},
		"a leak":                {func(i int) float64 { return 100 + float64(i) + 20*noise() }, rule{share: 0.1}, true},
		"a leak, but small":     {func(i int) float64 { return 100 + float64(i) }, rule{share: 0.1, least: 1000}, false},
		"a slow leak":           {func(i int) float64 { return 100 + float64(i)/100 }, rule{share: 0.1}, false},
		"fills, then stays":     {func(i int) float64 { return 100 * (1 - math.Exp(-float64(i)/10)) }, rule{share: 0.1}, false},
		"a saw":                 {func(i int) float64 { return 100 + float64(i%20)*10 }, rule{share: 0.1}, false},
		"a saw that rises":      {func(i int) float64 { return 100 + float64(i%20)*10 + float64(i)*2 }, rule{share: 0.1}, true},
		"a last step":           {func(i int) float64 { return 100 + 100*math.Floor(float64(i)/190) }, rule{share: 0.3}, false},
		"comes down":            {func(i int) float64 { return 1000 - float64(i) }, rule{share: 0.1}, false},
		"goes up from nothing":  {func(i int) float64 { return float64(max(0, i-120)) }, rule{share: 0.1}, true},
		"one peak at the end":   {func(i int) float64 { return 100 + 1000*math.Floor(float64(i)/199) }, rule{share: 0.1}, false},
		"steps, one after each": {func(i int) float64 { return 100 * math.Floor(1+float64(i)/25) }, rule{share: 0.1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c.rule.name = "x"
			faults := judge(run(200, c.f), []rule{c.rule})
			require.Equal(t, c.bad, len(faults) > 0, "%v", faults)
		})
	}
	require.NotEmpty(t, judge(nil, []rule{{name: "x"}}))
	require.NotEmpty(t, judge(run(12, func(int) float64 { return 1 }), []rule{{name: "x"}}), "too few")
	require.NotEmpty(t, judge(run(200, func(int) float64 { return 1 }), []rule{{name: "y"}}), "unknown is not flat")
}
