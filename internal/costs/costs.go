// Package costs holds a test that counts what messages cost: allocations, bytes allocated, operations on files and
// bytes of log. Counts are the same on every machine, so a rise of a tenth fails; times are for make bench.
//
// costs.tsv has what was counted: go test ./internal/costs -update writes it. A change that makes something dearer
// says in its commit why.
package costs
