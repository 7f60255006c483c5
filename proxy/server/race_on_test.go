//go:build race

package server

const raceEnabled = true // pools drop things on purpose
