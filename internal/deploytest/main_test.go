package deploytest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/testbin"
)

func TestMain(m *testing.M) {
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
