package chaostest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/testbin"
)

var (
	faultsFlag  = flag.Int("faults", 0, "do so many faults at random; 0: two")
	listFlag    = flag.Bool("set", false, "do each of a short list of faults once")
	timeFlag    = flag.Duration("time", 0, "begin no fault after this time; 0: no bound")
	seedFlag    = flag.Uint64("seed", 0, "seed of the first episode; 0: by the clock")
	onlyFlag    = flag.String("only", "", "do only faults with this in their name")
	limitFlag   = flag.Duration("limit", 0, "a fault fails if nothing could be sent to a group for longer; 0: no limit")
	keepFlag    = flag.String("keep", "", "directory for the data and history of episodes that fail; empty: a temporary one")
	clientsFlag = programs{}
	caged       = flag.Bool("caged", false, "this process has namespaces of its own (it says so to itself)")
)

// programs are those of official clients by name. The flag is a line for the name and for each argument.
type programs map[string][]string

func (p programs) String() string { return "" }

func (p programs) Set(text string) error {
	lines := strings.Split(text, "\n")
	if len(lines) < 2 {
		return errors.New("a name and the arguments of a program, each on a line")
	}
	p[lines[0]] = lines[1:]
	return nil
}

func TestMain(m *testing.M) {
	flag.Var(clientsFlag, "client", "program of an official client for TestRolling: its name and arguments, each on a line; %s is a directory for its logs")
	flag.Parse()
	if !*caged {
		if code, done := cage(); done {
			os.Exit(code)
		}
	}
	code := m.Run()
	testbin.Remove()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println("FAIL:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// firstSeed is the seed of the first episode.
func firstSeed() uint64 {
	if *seedFlag != 0 {
		return *seedFlag
	}
	return uint64(time.Now().UnixNano() / 1000)
}
