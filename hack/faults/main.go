// Command faults writes the list in docs/reliability.md of the faults that tests cause, from the tests:
//
//	go run ./hack/faults
//
// A test says what it tries with directives at the end of its doc comment, one line each:
//
//	//fault:KIND what happens => what holds then
//
// and a script of cmd/perigee with comments of that form:
//
//	# fault:KIND what happens => what holds then
//
// KIND is one of the table in kind.go. The list stands between two markers; what is around it is
// written by hand. The test of this package fails if the page is not what the tests say.
package main

import (
	"fmt"
	"os"
)

const page = "docs/reliability.md"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// run writes the page of the tree at root.
func run(root string) error {
	all, err := collect(root)
	if err != nil {
		return err
	}
	name := root + "/" + page
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	text, err := put(string(old), list(all))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
