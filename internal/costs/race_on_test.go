//go:build race

package costs

const raceEnabled = true
