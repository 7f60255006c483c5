// Package walk takes the rules of replication for random walks: the real cores of master, follower and
// controller, with everything between them made as bad as it gets.
//
// A walk has a few replicas, each with a log of small records, and one controller state. Whatever travels lies in a
// bag, from which it is delivered in any order, twice, or never. At any moment a replica may be suspected though it
// is well, stop cleanly, be killed, or lose what it had not flushed. A world outside sees everything and checks after
// each step that no acknowledged record is lost or changed, that nobody takes a record for acknowledged that is not,
// and the invariants I1, I3, I5, I6 and I12 of the design. In the end the faults stop, and everything must become
// acknowledged within a bounded number of rounds: what is stuck is a fault, too.
//
// The tests also switch rules off and want a counter-example: a checker that never fails proves nothing. Rules
// within the cores are switched off by the list in hack/mutate.
//
// The package has tests only:
//
//	go test ./internal/simtest/walk -walks 100000           more walks of each configuration
//	go test ./internal/simtest/walk -run Walks/durable2 -walk.seed 17 -v    one walk, with what happened
package walk
