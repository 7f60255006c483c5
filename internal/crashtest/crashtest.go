// Package crashtest kills real processes under load and checks that every answer they gave is still true
// afterwards: `make crash`. It knows nothing of the service but its protocols; the load is of package load, and what it saw is judged by
// package history.
//
// A round is one kill, or several at once or in a row, and the way back. Some rounds make an episode: a
// fresh data directory and one load, whose history is checked after each round, and at the end, when all
// that is stored has been read, as a whole.
package crashtest
