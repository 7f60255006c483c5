// Package testseed chooses the seeds of random tests. Unless told otherwise a test
// runs the same seeds each time, so that what CI says depends on the change alone.
//
//	TEST_SEED=random go test ./...    seeds nobody has tried before
//	TEST_SEED=17 go test -run X .     exactly this one
//
// A seed that fails becomes a case of its own, beside the test.
package testseed

import (
	"hash/fnv"
	"os"
	"strconv"
	"testing"
	"time"
)

// Variable is the environment variable that is asked.
const Variable = "TEST_SEED"

// First returns the seed from which t counts up, and logs it: a fixed one for each
// name of a test, or what TEST_SEED says ("random" or a number). Anything else
// there ends the test.
func First(t testing.TB) uint64 {
	t.Helper()
	seed, err := choose(t.Name(), os.Getenv(Variable), time.Now())
	if err != nil {
		t.Fatalf("%s is neither \"random\" nor a number: %v", Variable, err)
	}
	t.Logf("%s=%d", Variable, seed)
	return seed
}

func choose(name, said string, now time.Time) (uint64, error) {
	switch said {
	case "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(name))
		return h.Sum64() >> 1, nil // room to count up
	case "random":
		return uint64(now.UnixNano()), nil
	}
	return strconv.ParseUint(said, 10, 64)
}
