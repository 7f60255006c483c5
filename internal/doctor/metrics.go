package doctor

import "maps"

// Metrics are what a process shows, by name.
type Metrics map[string][]Sample

// Sample is one value.
type Sample struct {
	Labels map[string]string
	Value  float64
	// Buckets are those of a histogram, cumulative, by their upper bounds; Value is the count then.
	Buckets []Bucket
}

// Bucket counts the values up to a bound.
type Bucket struct{ Upto, Count float64 }

// value returns the sum over a name, false if nothing is known.
func (m Metrics) value(name string) (float64, bool) {
	sum := 0.0
	for _, s := range m[name] {
		sum += s.Value
	}
	return sum, len(m[name]) > 0
}

// with returns the samples with a label of a value.
func (m Metrics) with(name, label, value string) (sum float64) {
	for _, s := range m[name] {
		if s.Labels[label] == value {
			sum += s.Value
		}
	}
	return sum
}

// quantile is an upper bound of a histogram's quantile, false if nothing was measured or it is past the last
// bound.
func (m Metrics) quantile(name string, q float64) (float64, bool) {
	for _, s := range m[name] {
		if s.Value == 0 {
			continue
		}
		for _, b := range s.Buckets {
			if b.Count >= q*s.Value {
				return b.Upto, true
			}
		}
	}
	return 0, false
}

// clone is a deep enough copy for tests.
func (m Metrics) clone() Metrics { return maps.Clone(m) }
