// Package testbin builds the program once for the tests of a package that run it as a process of its own.
package testbin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// Dir is a directory for all tests of this process. Remove it at the end.
var Dir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "perigee-test-") })

// Path is the program under test: the one that TEST_PERIGEE_BIN names, or one that is built in Dir now.
var Path = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("TEST_PERIGEE_BIN"); bin != "" {
		return bin, nil
	}
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "perigee")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/perigee-mq/perigee/cmd/perigee")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building perigee: %w\n%s", err, out)
	}
	return bin, nil
})

// Remove removes Dir. It belongs at the end of TestMain.
func Remove() {
	if dir, err := Dir(); err == nil {
		_ = os.RemoveAll(dir)
	}
}
