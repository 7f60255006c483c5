// Package archtest holds the rules of the tree that a compiler does not know:
// which package may import which, who may know gRPC, what a pure core must not
// touch, where a pause is allowed, and that each package says once what it is.
// rules.go is the list, with the reason for each; Check compares a tree with it.
// Only what ships is looked at: tests may import anything.
//
// The test runs `go list`, which the test cache cannot see, so call it with
// -count=1.
package archtest

import (
	"fmt"
	"path"
	"strings"
)

// Module is the import path of the tree.
const Module = "github.com/perigee-mq/perigee"

// Package is what the rules need to know of one package.
type Package struct {
	Path  string // within the module, "." for its root
	Files []File
	// Tested says that it has tests, Tight that they look for goroutines that are left.
	Tested, Tight bool
}

// File is one source file that is not a test.
type File struct {
	Name    string   // within the package
	Imports []string // whole import paths
	Doc     bool     // has a package comment
	Uses    []Use
}

// Use is one place that does what only some packages may do.
type Use struct {
	What string // "time.Sleep", "time.Now" and the like, or "go" for a go statement
	Line int
}

// Check returns what is wrong, one sentence each with file and reason.
func Check(packages []Package) []string {
	var faults []string
	for _, p := range packages {
		faults = append(faults, checkDoc(p)...)
		faults = append(faults, checkTight(p)...)
		for _, f := range p.Files {
			for _, imported := range f.Imports {
				faults = append(faults, checkImport(p, f, imported)...)
			}
			faults = append(faults, checkUses(p, f)...)
		}
	}
	return append(faults, unusedPauses(packages)...)
}

// checkTight wants every package's tests to look for goroutines that are left.
func checkTight(p Package) []string {
	_, may := loose[p.Path]
	switch {
	case p.Tested && !p.Tight && !may:
		return []string{fmt.Sprintf("%s has tests that do not look for goroutines which are left: add a TestMain with goleak.VerifyTestMain. See loose in internal/archtest/rules.go", p.Path)}
	case p.Tight && may:
		return []string{fmt.Sprintf("%s looks for goroutines that are left: take it out of loose in internal/archtest/rules.go", p.Path)}
	}
	return nil
}

// checkDoc wants the package comment on exactly one file.
func checkDoc(p Package) []string {
	if within(p.Path, "api") {
		return nil // generated: what a package is stands in its .proto
	}
	var with []string
	for _, f := range p.Files {
		if f.Doc {
			with = append(with, f.Name)
		}
	}
	switch {
	case len(p.Files) == 0 || len(with) == 1:
		return nil
	case len(with) == 0:
		return []string{fmt.Sprintf("%s has no package comment: say in %s or doc.go what it is", p.Path, path.Base(p.Path)+".go")}
	default:
		return []string{fmt.Sprintf("%s has package comments in %s: keep one", p.Path, strings.Join(with, ", "))}
	}
}

func checkImport(p Package, f File, imported string) []string {
	own, isOwn := strings.CutPrefix(imported, Module+"/")
	var faults []string
	if isOwn && !arrowAllowed(p.Path, own) {
		faults = append(faults, fmt.Sprintf("%s/%s imports %s: %s. See arrows in internal/archtest/rules.go", p.Path, f.Name, own, arrowReason(p.Path)))
	}
	if isTier(p.Path) {
		for _, e := range edges {
			if e.is(imported) && !e.allowed(p.Path) {
				faults = append(faults, fmt.Sprintf("%s/%s imports %s: %s. See edges in internal/archtest/rules.go", p.Path, f.Name, strings.TrimPrefix(imported, Module+"/"), e.why))
			}
		}
	}
	if why, ok := pure[p.Path]; ok && forbiddenToPure(imported) {
		faults = append(faults, fmt.Sprintf("%s/%s imports %s: %s. See pure in internal/archtest/rules.go", p.Path, f.Name, imported, why))
	}
	return faults
}

func checkUses(p Package, f File) []string {
	var faults []string
	for _, u := range f.Uses {
		if why, ok := pure[p.Path]; ok {
			faults = append(faults, fmt.Sprintf("%s/%s:%d uses %s: %s. See pure in internal/archtest/rules.go", p.Path, f.Name, u.Line, u.What, why))
		}
		if _, ok := pauses[p.Path]; u.What == "time.Sleep" && !ok {
			faults = append(faults, fmt.Sprintf("%s/%s:%d uses time.Sleep: wait for what you wait for, with a deadline (a timer and ctx.Done in a select). See pauses in internal/archtest/rules.go", p.Path, f.Name, u.Line))
		}
	}
	return faults
}

// unusedPauses finds permissions that nobody needs any more.
func unusedPauses(packages []Package) []string {
	var faults []string
	for _, p := range packages {
		if _, ok := pauses[p.Path]; ok && !sleeps(p) {
			faults = append(faults, fmt.Sprintf("%s may use time.Sleep and does not: take it out of pauses in internal/archtest/rules.go", p.Path))
		}
	}
	return faults
}

func sleeps(p Package) bool {
	for _, f := range p.Files {
		for _, u := range f.Uses {
			if u.What == "time.Sleep" {
				return true
			}
		}
	}
	return false
}

// within tells whether a package is folder or below it.
func within(pkg, folder string) bool {
	return pkg == folder || strings.HasPrefix(pkg, folder+"/")
}
