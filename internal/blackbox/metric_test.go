package blackbox

import (
	"bufio"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// metrics reads /metrics: value by name with labels, and the sum by name alone.
func (d dev) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + d.http + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	values := map[string]float64{}
	sc := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20))
	for sc.Scan() {
		line := sc.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		key := line[:at]
		values[key] = v
		if name, _, labelled := strings.Cut(key, "{"); labelled {
			values[name] += v
		}
	}
	return values
}

// metric is the sum of a metric over its labels.
func (d dev) metric(t *testing.T, name string) float64 {
	t.Helper()
	v, ok := d.metrics(t)[name]
	if !ok {
		t.Fatalf("there is no metric %s", name)
	}
	return v
}
