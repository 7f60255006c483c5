// Package simtest runs a whole cluster in one process: the real controllers, brokers and proxies, on a simulated clock
// (a bubble of testing/synctest), network (simnet) and disks (memfs), under a load of everything and random faults.
//
// A seed is a schedule: which clients call what, which faults come when, how long each byte is under way. What the
// scheduler of Go does with goroutines that may run at the same simulated moment is not part of it, so a seed that
// fails once may pass the next time; it is tried again with -count. The history of all calls is judged by
// internal/crashtest/history (A1 to A7 of the test plan), the controllers' registers by porcupine (A10), the replicas'
// logs byte by byte (A8), events of the brokers as they come (A9), and times without a successful send at the end (A11).
//
// The package has tests only:
//
//	make sim SEED=17         one seed, with what happened
//	make sim SEEDS=1000      so many seeds nobody has tried
package simtest
