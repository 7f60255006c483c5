//go:build race

package pop

// raceSlows is how many times slower the race detector makes this package's tests.
const raceSlows = 8
