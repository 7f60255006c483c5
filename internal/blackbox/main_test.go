package blackbox

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/perigee-mq/perigee/internal/testbin"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Most tests wait for leases and timeouts of the server: they overlap, however few cores there are.
	_ = flag.Set("test.parallel", "64")
	code := m.Run()
	if shared.p != nil {
		if err := shared.p.stop(); err != nil {
			fmt.Println("FAIL: the shared server:", err)
			code = 1
		}
		for _, line := range shared.p.complaints() {
			fmt.Println("FAIL: the shared server's log:", line)
			code = 1
		}
	}
	testbin.Remove()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Println("FAIL:", err)
		code = 1
	}
	os.Exit(code)
}

// dev is a perigee dev process and its addresses.
type dev struct {
	p          *process
	grpc, http string
}

// shared is the server of most tests: a panic or an error in its log fails all of them.
var shared dev

var startShared = sync.OnceValue(func() error {
	bin, err := testbin.Path()
	if err != nil {
		return err
	}
	dir, err := testbin.Dir()
	if err != nil {
		return err
	}
	shared, err = newDev("shared", bin, filepath.Join(dir, "shared"))
	return err
})

func newDev(name, bin, dir string) (dev, error) {
	p, addrs, err := start(name, bin, "dev", "--auto-create=false", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	if err != nil {
		return dev{}, err
	}
	return dev{p: p, grpc: addrs["grpc"], http: addrs["http"]}, nil
}

// sharedDev returns the shared server.
func sharedDev(t *testing.T) dev {
	t.Helper()
	if err := startShared(); err != nil {
		t.Fatal(err)
	}
	return shared
}

// ownDev starts a server for one test.
func ownDev(t *testing.T) dev {
	t.Helper()
	bin, err := testbin.Path()
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDev(t.Name(), bin, filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ends(t, d.p) })
	return d
}

// ends stops a process, which must end well and must not have complained.
func ends(t *testing.T, p *process) {
	t.Helper()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	for _, line := range p.complaints() {
		t.Errorf("the log of %s: %s", p.name, line)
	}
	if t.Failed() {
		t.Logf("the log of %s:\n%s", p.name, p.log())
	}
}
