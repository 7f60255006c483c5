package crashtest

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/testbin"
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
