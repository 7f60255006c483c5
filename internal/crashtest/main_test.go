package crashtest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	roundsFlag = flag.Int("rounds", 0, "kill so many times; 0: a few")
	timeFlag   = flag.Duration("time", 0, "begin no round after this time; 0: no bound")
	seedFlag   = flag.Uint64("seed", 0, "seed of the first episode; 0: by the clock")
	modeFlag   = flag.String("mode", "", "what to kill: dev or cluster; empty: both")
	keepFlag   = flag.String("keep", "", "directory for the data and history of episodes that fail; empty: a temporary one")
	portsFlag  = flag.String("ports", "20000-30999", "ports to listen on")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if scratch != "" {
		_ = os.RemoveAll(scratch)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println("FAIL:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// scratch is a directory for the program, removed at the end.
var scratch string

// program makes the binary once; TEST_PERIGEE_BIN names one that is there.
var program = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("TEST_PERIGEE_BIN"); bin != "" {
		return bin, nil
	}
	dir, err := os.MkdirTemp("", "perigee-crash-")
	if err != nil {
		return "", err
	}
	scratch = dir
	bin := filepath.Join(dir, "perigee")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/perigee-mq/perigee/cmd/perigee")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building perigee: %w\n%s", err, out)
	}
	return bin, nil
})

// firstSeed is the seed of the first episode.
func firstSeed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return uint64(time.Now().UnixNano() / 1000)
}
