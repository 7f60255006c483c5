// Command mutate switches rules of the code off, one at a time, and fails if the tests let one live.
//
//	go run ./hack/mutate [-only REGEXP] [-trust] [-list] [FILE]
//
// FILE (hack/mutate/mutations.txt) has one block for each mutation:
//
//	mutation NAME            what is switched off, in a few words
//	file PATH                of the source file
//	-TEXT                    lines that stand there exactly once, next to each other
//	+TEXT                    lines that take their place; may be missing
//	test PACKAGE [-run EXPR] one or more: these must fail, at least one of them
//
// A mutant that does not compile, or whose lines are not found, is an error, too: the list must follow
// the code. The tree is not touched: the go command gets the mutated file as an overlay.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

func main() {
	only := flag.String("only", "", "regular expression: only mutations with such a name")
	list := flag.Bool("list", false, "print the names and end")
	jobs := flag.Int("jobs", 2, "mutants at a time")
	limit := flag.Duration("limit", 5*time.Minute, "for the tests of one mutant; one that takes longer counts as caught")
	trust := flag.Bool("trust", false, "do not run the tests without a mutation first: they have just passed")
	flag.Parse()
	path := "hack/mutate/mutations.txt"
	if flag.NArg() > 0 {
		path = flag.Arg(0)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		fatal(err)
	}
	all, err := parse(string(text))
	if err != nil {
		fatal(fmt.Errorf("%s: %w", path, err))
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		fatal(err)
	}
	var chosen []mutation
	for _, m := range all {
		if match.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if *list {
		for _, m := range chosen {
			fmt.Println(m.name)
		}
		return
	}
	if !*trust {
		if err := sound(chosen, *limit); err != nil {
			fatal(err)
		}
	}
	if bad := runAll(chosen, *jobs, *limit); bad > 0 {
		fmt.Printf("mutate: %d of %d mutants are wrong or live\n", bad, len(chosen))
		os.Exit(1)
	}
	fmt.Printf("mutate: all %d mutants were caught\n", len(chosen))
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "mutate:", err)
	os.Exit(2)
}

// sound runs every test command without a mutation: it must pass.
func sound(all []mutation, limit time.Duration) error {
	empty := filepath.Join(os.TempDir(), fmt.Sprintf("mutate-none-%d.json", os.Getpid()))
	if err := os.WriteFile(empty, []byte(`{"Replace":{}}`), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(empty) }()
	seen := map[string]bool{}
	for _, m := range all {
		for _, test := range m.tests {
			command := strings.Join(test, " ")
			if seen[command] {
				continue
			}
			seen[command] = true
			if failed, err := fails(empty, test, limit); failed || err != nil {
				return fmt.Errorf("go test %s fails as the code is: %w", command, err)
			}
		}
	}
	return nil
}

// runAll runs mutants, a few at a time, and returns how many were not caught.
func runAll(all []mutation, jobs int, limit time.Duration) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	bad := 0
	slots := make(chan struct{}, jobs)
	for _, m := range all {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			err := m.run(limit)
			mu.Lock()
			defer mu.Unlock()
			took := time.Since(began).Round(time.Second)
			if err != nil {
				bad++
				fmt.Printf("LIVES   %-60s %v: %v\n", m.name, took, err)
				return
			}
			fmt.Printf("caught  %-60s %v\n", m.name, took)
		})
	}
	wg.Wait()
	return bad
}

// run tests one mutant; nil if it is caught.
func (m *mutation) run(limit time.Duration) error {
	src, err := os.ReadFile(m.file)
	if err != nil {
		return err
	}
	if n := strings.Count(string(src), m.old); n != 1 {
		return fmt.Errorf("its lines stand %d times in %s", n, m.file)
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	mutant := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(mutant, []byte(strings.Replace(string(src), m.old, m.new, 1)), 0o600); err != nil {
		return err
	}
	from, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	b, err := json.Marshal(map[string]map[string]string{"Replace": {from: mutant}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, b, 0o600); err != nil {
		return err
	}
	for _, test := range m.tests {
		caught, err := fails(overlay, test, limit)
		if caught || err != nil {
			return err
		}
	}
	return fmt.Errorf("no test failed (%d commands)", len(m.tests))
}

// fails tells whether a test command fails, other than by not being built.
func fails(overlay string, test []string, limit time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append([]string{"test", "-count=1", "-failfast", "-overlay", overlay}, test...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch {
	case err == nil:
		return false, nil
	case ctx.Err() != nil:
		return true, nil
	case strings.Contains(out.String(), "[build failed]") || strings.Contains(out.String(), "[setup failed]"):
		return false, fmt.Errorf("the mutant does not compile:\n%s", out.String())
	case strings.Contains(out.String(), "no tests to run"):
		return false, fmt.Errorf("go test %s: no tests", strings.Join(test, " "))
	}
	return true, nil
}
