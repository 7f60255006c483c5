package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/perigee-mq/perigee/internal/cfg"
	"github.com/perigee-mq/perigee/internal/doctor"
	"github.com/perigee-mq/perigee/internal/testport"
)

// scriptCommands are the commands of the scripts in testdata besides those of testscript.
//
//	exits CODE PROGRAM ARGS...  runs a program and requires its exit code
//	serve NAME PROGRAM ARGS...  starts a server and waits for its ready line, whose addr=..., grpc=... become
//	                            $NAME_addr, $NAME_grpc; its output is in NAME.out and NAME.err
//	! serve NAME PROGRAM ARGS.. starts a server that will not be ready yet, and waits until it logs that it starts
//	quit NAME                   ends a server by SIGTERM and requires exit code 0
//	crash NAME                  ends a server by SIGKILL
//	freeport VAR                sets VAR to an address of 127.0.0.1 on which nobody listens
//	jsonout PATH VALUE          requires a value at a path (a.0.b) of the JSON on the last standard output
//	empty DIR                   requires that a directory holds nothing
//	flip FILE OFFSET            changes one bit of a file
//	page CODE URL [PATTERN]     gets a page and requires its status and what it says
//	healthy N CHECKS perigee doctor ARGS...
//	                            requires N findings, all of them OK; those of CHECKS (names with commas) tell how fast
//	                            the machine is just now, and must only be known
var scriptCommands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"exits": exits, "serve": serve, "quit": quit, "crash": crash, "freeport": freePort, "jsonout": jsonOut, "empty": empty,
	"flip": flip, "page": page, "healthy": healthy,
}

// patience is how long a server may take to start or to end.
const patience = 20 * time.Second

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// process is one that a script started.
type process struct {
	cmd   *exec.Cmd
	ended chan error // gets what Wait said, once
}

// servers are the processes of one script, by name.
type servers map[string]*process

// serversKey is where a script keeps its servers.
type serversKey struct{}

func serve(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: serve NAME PROGRAM ARGS...")
	}
	name := args[0]
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), scriptEnv(ts)
	errFile, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	cmd.Stderr = errFile
	out, w, err := os.Pipe()
	ts.Check(err)
	cmd.Stdout = w
	ts.Check(cmd.Start())
	ts.Check(errors.Join(w.Close(), errFile.Close()))
	s := &process{cmd: cmd, ended: make(chan error, 1)}
	go func() { s.ended <- cmd.Wait() }()
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = out.Close()
	})
	ts.Value(serversKey{}).(servers)[name] = s
	if neg {
		starting(ts, name)
		return
	}
	ready(ts, name, out)
}

// starting waits until a server's log has something.
func starting(ts *testscript.TestScript, name string) {
	deadline := time.Now().Add(patience)
	for !strings.Contains(ts.ReadFile(name+".err"), "msg=starting") {
		if time.Now().After(deadline) {
			ts.Fatalf("%s does not start", name)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// ready waits for the line that a server prints when it can be used.
func ready(ts *testscript.TestScript, name string, out *os.File) {
	ts.Check(out.SetReadDeadline(time.Now().Add(patience)))
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		ts.Fatalf("%s is not ready: %v\n%s", name, err, ts.ReadFile(name+".err"))
	}
	parts := strings.Fields(line)
	if len(parts) < 2 || parts[0] != "ready" {
		ts.Fatalf("%s says %q, want ready and its addresses", name, line)
	}
	ts.Check(os.WriteFile(ts.MkAbs(name+".out"), []byte(line), 0o600))
	for _, p := range parts[1:] {
		key, addr, _ := strings.Cut(p, "=")
		ts.Setenv(name+"_"+key, addr)
	}
}

// scriptEnv is the environment of a script, with the settings that its env lines have made.
func scriptEnv(ts *testscript.TestScript) []string {
	var vars []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GORACE", "GOCOVERDIR"} {
		if v := ts.Getenv(name); v != "" {
			vars = append(vars, name+"="+v)
		}
	}
	for _, key := range append(settingKeys(newRoot()), cfg.FileKey) {
		if v := ts.Getenv(cfg.EnvName(key)); v != "" {
			vars = append(vars, cfg.EnvName(key)+"="+v)
		}
	}
	return vars
}

func quit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: quit NAME")
	}
	all := ts.Value(serversKey{}).(servers)
	s := all[args[0]]
	if s == nil {
		ts.Fatalf("no server %s", args[0])
	}
	delete(all, args[0])
	ts.Check(s.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-s.ended:
		if err != nil {
			ts.Fatalf("%s: %v\n%s", args[0], err, ts.ReadFile(args[0]+".err"))
		}
	case <-time.After(patience):
		ts.Fatalf("%s has not ended %s after SIGTERM\n%s", args[0], patience, ts.ReadFile(args[0]+".err"))
	}
}

func crash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: crash NAME")
	}
	all := ts.Value(serversKey{}).(servers)
	s := all[args[0]]
	if s == nil {
		ts.Fatalf("no server %s", args[0])
	}
	delete(all, args[0])
	ts.Check(s.cmd.Process.Kill())
	<-s.ended //nolint:errcheck // it was killed
}

func freePort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: freeport VAR")
	}
	addr, err := testport.Find()
	ts.Check(err)
	ts.Setenv(args[0], addr)
}

func jsonOut(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: jsonout PATH VALUE")
	}
	var at any
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &at); err != nil {
		ts.Fatalf("standard output is no JSON: %v", err)
	}
	for step := range strings.SplitSeq(args[0], ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				ts.Fatalf("%s: no element %s among %d", args[0], step, len(v))
			}
			at = v[i]
		default:
			ts.Fatalf("%s: nothing at %s", args[0], step)
		}
	}
	b, err := json.Marshal(at)
	ts.Check(err)
	if got := strings.Trim(string(b), `"`); (got == args[1]) == neg {
		ts.Fatalf("%s is %s, want %s", args[0], got, args[1])
	}
}

func empty(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: empty DIR")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	if (len(entries) == 0) == neg {
		ts.Fatalf("%s holds %v", args[0], entries)
	}
}

func flip(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip FILE OFFSET")
	}
	at, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	ts.Check(err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	ts.Check(err)
	b[0] ^= 4
	_, err = f.WriteAt(b, at)
	ts.Check(errors.Join(err, f.Close()))
}

func page(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: page CODE URL [PATTERN]")
	}
	client := &http.Client{Timeout: patience}
	resp, err := client.Get(args[1])
	ts.Check(err)
	body, err := io.ReadAll(resp.Body)
	ts.Check(errors.Join(err, resp.Body.Close()))
	if strconv.Itoa(resp.StatusCode) != args[0] {
		ts.Fatalf("%s: %s, want %s\n%s", args[1], resp.Status, args[0], body)
	}
	if len(args) == 3 && !regexp.MustCompile(args[2]).Match(body) {
		ts.Fatalf("%s does not say %q:\n%s", args[1], args[2], body)
	}
}

func healthy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: healthy N CHECKS perigee doctor ARGS...")
	}
	_ = ts.Exec(args[2], append(args[3:], "-o", "json")...) // its exit code depends on the machine, too
	var found []doctor.Finding
	if err := json.Unmarshal([]byte(ts.ReadFile("stdout")), &found); err != nil {
		ts.Fatalf("standard output is no JSON: %v", err)
	}
	if n, err := strconv.Atoi(args[0]); err != nil || n != len(found) {
		ts.Fatalf("%d findings, want %s", len(found), args[0])
	}
	speed := strings.Split(args[1], ",")
	for _, f := range found {
		if f.State != doctor.OK && (f.State == doctor.Unknown || !slices.Contains(speed, f.Check)) {
			ts.Fatalf("%s is %s: %v", f.Check, f.State, f.Found)
		}
	}
}
