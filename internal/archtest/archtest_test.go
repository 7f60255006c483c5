package archtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTree checks the tree that this file is part of.
func TestTree(t *testing.T) {
	packages, err := Load("../..")
	require.NoError(t, err)
	require.NotEmpty(t, packages)
	for _, fault := range Check(packages) {
		t.Error(fault)
	}
}

func pkg(path string, imports ...string) Package {
	return Package{Path: path, Files: []File{{Name: "a.go", Doc: true, Imports: imports}}}
}

func TestArrows(t *testing.T) {
	const own, grpc = Module + "/", "google.golang.org/grpc/codes"
	for _, test := range []struct {
		from, imported string
		fault          string // a part of it, "" if allowed
	}{
		{"cmd/perigee", own + "broker", ""},
		{"cmd/perigee", own + "api/perigee/admin/v1", ""},
		{"cmd/perigee", "google.golang.org/grpc", ""},
		{"proxy/route", own + "proxy/clients", ""},
		{"proxy/route", own + "internal/brokerapi", ""},
		{"proxy/route", own + "broker", "through internal/brokerapi"},
		{"proxy/route", own + "store/record", "through internal/brokerapi"},
		{"proxy/route", own + "api/perigee/controller/v1", "only its edge knows messages"},
		{"proxy/ctl", own + "api/perigee/controller/v1", ""},
		{"proxy/server", own + "api/apache/rocketmq/v2", ""},
		{"proxy/server", grpc, "only its edge knows gRPC"},
		{"proxy/edge", grpc, ""},
		{"broker", own + "store", ""},
		{"broker/topic", own + "store/record", ""},
		{"broker/topic", own + "controller/state", "on the wire"},
		{"broker/server", own + "api/perigee/broker/v1", ""},
		{"broker/server", grpc, ""},
		{"broker/session", grpc, "only its edge knows gRPC"},
		{"broker/pop", own + "store/record", ""},
		{"broker/pop", own + "store/queue", "a pure function of records"},
		{"broker/pop", own + "broker/topic", "a pure function of records"},
		{"broker/pop", "os", "same in-flight table"},
		{"broker/offset", own + "broker/pop", "a pure function of records"},
		{"broker/repl/quorum", own + "store/record", ""},
		{"broker/repl/quorum", own + "store/commitlog", "a pure function of what a master heard"},
		{"broker/repl/follower", own + "broker/repl/quorum", ""},
		{"broker/repl/follower", "context", "follow from what it heard"},
		{"broker/redriven", "sync", "same redriven dead letters"},
		{"broker/filter", own + "internal/sql92", ""},
		{"broker/filter", own + "store/commitlog", "judges one message"},
		{"store/index", own + "store/record", ""},
		{"store/index", own + "store/queue", "no other view"},
		{"store/dedup", own + "store/commitlog", "no other view"},
		{"store/replica", own + "store/record", ""},
		{"store/replica", own + "store/commitlog", "a pure function of its records"},
		{"internal/sql92", own + "internal/mqerr", "text and values"},
		{"controller/state", own + "internal/mqerr", ""},
		{"controller/state", own + "controller", "a pure function of commands"},
		{"controller/state", "sync", "compute the same state"},
		{"controller/liveness", own + "store", "on the wire"},
		{"controller/liveness", "os", ""},
		{"store/segment", own + "internal/vfs/memfs", ""},
		{"store/segment", own + "internal/mqerr", ""},
		{"store/segment", own + "internal/brokerapi", "knows files"},
		{"store/segment", own + "api/perigee/broker/v1", "knows files"},
		{"store/segment", grpc, "only its edge knows gRPC"},
		{"internal/link", own + "api/perigee/broker/v1", ""},
		{"internal/link", grpc, ""},
		{"internal/obs", own + "proxy", "must know none of them"},
		{"internal/simtest", own + "proxy", ""},
		{"internal/obs", own + "internal/simtest", "must know none of them"},
		{"broker", own + "internal/simtest", "on the wire"},
		{"api/perigee/admin/v1", own + "api/perigee/controller/v1", ""},
		{"api/perigee/admin/v1", own + "internal/mqerr", "generated"},
		{"tools", own + "internal/mqerr", "no arrow says"},
		{"tools", "os", ""},
		{"storefront", own + "store", "no arrow says"},
	} {
		t.Run(test.from+" to "+test.imported, func(t *testing.T) {
			faults := Check([]Package{pkg(test.from, test.imported)})
			if test.fault == "" {
				require.Empty(t, faults)
				return
			}
			require.Contains(t, strings.Join(faults, "\n"), test.fault)
			require.Contains(t, faults[0], test.from+"/a.go imports "+strings.TrimPrefix(test.imported, own))
		})
	}
}

func TestPackageComment(t *testing.T) {
	bare, twice, generated := pkg("proxy/route"), pkg("proxy/route"), pkg("api/perigee/admin/v1")
	bare.Files[0].Doc = false
	twice.Files = append(twice.Files, File{Name: "b.go", Doc: true})
	generated.Files[0].Doc = false
	require.Empty(t, Check([]Package{pkg("proxy/route"), generated, {Path: "interop"}}))
	require.Equal(t, []string{"proxy/route has no package comment: say in route.go or doc.go what it is"}, Check([]Package{bare}))
	require.Equal(t, []string{"proxy/route has package comments in a.go, b.go: keep one"}, Check([]Package{twice}))
}

func TestUses(t *testing.T) {
	sleeping, starting := pkg("broker/session"), pkg("broker/pop")
	sleeping.Files[0].Uses = []Use{{What: "time.Sleep", Line: 7}, {What: "time.Now", Line: 8}, {What: "go", Line: 9}}
	starting.Files[0].Uses = []Use{{What: "go", Line: 3}, {What: "time.Now", Line: 4}}

	faults := Check([]Package{sleeping})
	require.Len(t, faults, 1)
	require.Contains(t, faults[0], "broker/session/a.go:7 uses time.Sleep")

	faults = Check([]Package{starting})
	require.Len(t, faults, 2)
	require.Contains(t, faults[0], "broker/pop/a.go:3 uses go")
	require.Contains(t, faults[1], "broker/pop/a.go:4 uses time.Now")
}

func TestPauses(t *testing.T) {
	pauses["broker/session"] = "for this test"
	t.Cleanup(func() { delete(pauses, "broker/session") })
	sleeping := pkg("broker/session")
	sleeping.Files[0].Uses = []Use{{What: "time.Sleep", Line: 7}}
	require.Empty(t, Check([]Package{sleeping}))
	require.Contains(t, Check([]Package{pkg("broker/session")})[0], "take it out of pauses")
}

// TestParse reads a file that hides what it does a little.
func TestParse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a.go", "// Package a is one.\npackage a\n\nimport (\n\t\"os\"\n\tclock \"time\"\n)\n\nvar _ = os.Args\n\nfunc f() {\n\tgo f()\n\tclock.Sleep(clock.Second)\n\tg := clock.Now\n\t_ = g\n}\n")
	write("b_darwin.go", "package a\n\ntype time struct{ Sleep func() }\n\nfunc g(t time) { t.Sleep() }\n")
	p, err := parse(listed{ImportPath: Module + "/broker/a", Dir: dir, GoFiles: []string{"a.go"}, IgnoredGoFiles: []string{"b_darwin.go", "c_test.go"}})
	require.NoError(t, err)
	require.Equal(t, Package{Path: "broker/a", Files: []File{
		{Name: "a.go", Imports: []string{"os", "time"}, Doc: true, Uses: []Use{{"go", 12}, {"time.Sleep", 13}, {"time.Now", 14}}},
		{Name: "b_darwin.go"},
	}}, p)

	write("c.go", "package a\n\nfunc {\n")
	_, err = parse(listed{Dir: dir, GoFiles: []string{"c.go"}})
	require.ErrorContains(t, err, "c.go")
}

func TestTight(t *testing.T) {
	p := pkg("proxy/route")
	require.Empty(t, Check([]Package{p}), "no tests, no goroutines of tests")
	p.Tested = true
	require.Contains(t, strings.Join(Check([]Package{p}), ""), "goleak.VerifyTestMain")
	p.Tight = true
	require.Empty(t, Check([]Package{p}))
	loose["proxy/route"] = "for this test"
	defer delete(loose, "proxy/route")
	require.Contains(t, strings.Join(Check([]Package{p}), ""), "take it out of loose")
}
