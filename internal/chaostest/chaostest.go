// Package chaostest runs a cluster of real processes (controllers, replicas of broker groups, proxies), does to it what
// machines and networks do, and checks that every answer it gave stays true: `make chaos`. The load and its
// checker are those of package crashtest.
//
// Where Linux allows it, each process has a network namespace with an address of its own behind one router, which is the
// namespace of the test, so links can be cut, each direction for itself; all of it is in namespaces that end with the test.
// Elsewhere everything listens on loopback, and faults of the network are left out, with a notice.
//
// A fault is something that is done, perhaps held for a while, and undone; then the cluster must come to rest: all
// processes run, every broker group has a master that serves and all its replicas in sync. Some faults make an episode
// on fresh directories, whose history is checked after each fault and as a whole at the end.
package chaostest
