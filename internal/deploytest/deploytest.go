// Package deploytest starts what the files in deploy/ say, with loopback addresses in place of those of machines and
// containers, so that they cannot drift from the program.
package deploytest
