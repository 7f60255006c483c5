//go:build race

package engine

// raceSlows is how many times slower the race detector makes this package's tests.
const raceSlows = 6
