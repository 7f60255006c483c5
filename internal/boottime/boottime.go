// Package boottime reads the clock that goes on while the machine is suspended: leases run on it. Pure cores
// never import it: they get times as arguments.
package boottime
