package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/internal/vfs/faultfs"
)

// faultyWhen is the machine's file system until a file appears, whose text is an operation and a part of a
// path: from then on those fail.
func faultyWhen(file string) vfs.FS {
	fs := faultfs.Wrap(vfs.OS)
	go func() {
		for {
			text, err := os.ReadFile(file)
			if op, path, ok := strings.Cut(string(text), " "); err == nil && ok {
				ops := map[string]faultfs.Op{"sync": faultfs.OpSync, "write": faultfs.OpWrite}
				fs.Set(faultfs.Fault{Op: ops[op], Path: path, Nth: 1, Always: true, Short: true, Err: syscall.EIO})
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	return fs
}

// faulty is a dev process whose disk fails on demand.
type faulty struct {
	t    *testing.T
	dir  string
	cmd  *exec.Cmd
	addr map[string]string
	done chan struct{}

	mu  sync.Mutex
	log []string
}

func startFaulty(t *testing.T, dir string) *faulty {
	t.Helper()
	f := &faulty{t: t, dir: dir, addr: map[string]string{}, done: make(chan struct{})}
	f.cmd = exec.Command(os.Args[0], "dev", "--data-dir", filepath.Join(dir, "data"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--checkpoint-interval", "100ms")
	f.cmd.Env = append(os.Environ(), "TEST_FAULT_WHEN="+f.when())
	out, err := f.cmd.StdoutPipe()
	require.NoError(t, err)
	errs, err := f.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, f.cmd.Start())
	t.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		<-f.done
	})
	ready := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() {
		for sc := bufio.NewScanner(out); sc.Scan(); {
			if rest, ok := strings.CutPrefix(sc.Text(), "ready "); ok {
				ready <- rest
			}
		}
	})
	reading.Go(func() {
		for sc := bufio.NewScanner(errs); sc.Scan(); {
			f.mu.Lock()
			f.log = append(f.log, sc.Text())
			f.mu.Unlock()
		}
	})
	go func() {
		defer close(f.done)
		reading.Wait()
		_ = f.cmd.Wait()
	}()
	select {
	case line := <-ready:
		for part := range strings.FieldsSeq(line) {
			k, v, _ := strings.Cut(part, "=")
			f.addr[k] = v
		}
	case <-f.done:
		t.Fatalf("it ended at once:\n%s", f.lines())
	case <-time.After(patience):
		t.Fatalf("it was not ready:\n%s", f.lines())
	}
	return f
}

func (f *faulty) when() string { return filepath.Join(f.dir, "when") }

func (f *faulty) lines() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, "\n")
}

// perigee runs a command against the process.
func (f *faulty) perigee(args ...string) (string, error) {
	c := exec.CommandContext(f.t.Context(), os.Args[0], append(args, "--server", f.addr["grpc"])...)
	c.Env = append(os.Environ(), "TEST_FAULT_WHEN="+filepath.Join(f.dir, "never"))
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestFailStop lets the disk of a real process fail.
//
//fault:storage fdatasync or a write of the log fails under a real process => the caller learns that the outcome is unknown, readyz goes, one log line says what to do, the exit code is not 0, and the next start has every acknowledged message
//fault:storage the consume queues of a real process cannot be written or synced => it goes on, and says so
func TestFailStop(t *testing.T) {
	for _, c := range []struct {
		fault string
		ends  bool
	}{
		{"sync /broker/log/0", true},
		{"write /broker/log/0", true},
		{"sync /broker/queue/", false},
		{"write /broker/queue/", false},
	} {
		t.Run(strings.ReplaceAll(c.fault, "/", " "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			f := startFaulty(t, dir)
			out, err := f.perigee("send", "orders", "before")
			require.NoError(t, err, out)
			require.NoError(t, os.WriteFile(f.when(), []byte(c.fault), 0o600))
			stored := []string{"before"}
			for end := time.Now().Add(patience); c.ends || len(stored) < 5; {
				body := fmt.Sprintf("m%d.", len(stored))
				if out, err = f.perigee("send", "orders", body); err != nil {
					break
				}
				stored = append(stored, body)
				require.True(t, time.Now().Before(end), "the fault did not strike")
			}
			if c.ends {
				f.ended(out)
			} else {
				if err != nil {
					require.Contains(t, out, "does not take the files of its consume queues")
				}
				require.Eventually(t, func() bool { return strings.Contains(f.lines(), "checkpoint failed") }, patience, 10*time.Millisecond)
				require.Equal(t, http.StatusOK, f.readyz())
				require.NoError(t, f.cmd.Process.Kill())
				<-f.done
			}
			require.NoError(t, os.Remove(f.when()))
			f = startFaulty(t, dir)
			got, err := f.perigee("receive", "orders", "--group", "g", "--count", fmt.Sprint(len(stored)))
			require.NoError(t, err, got)
			for _, body := range stored {
				require.Contains(t, got, body)
			}
		})
	}
}

// ended checks the end of a process whose log has failed. said is what the caller saw of it.
func (f *faulty) ended(said string) {
	t := f.t
	require.Contains(t, said, "failed while the request was under way")
	select {
	case <-f.done:
	case <-time.After(patience):
		t.Fatalf("it goes on:\n%s", f.lines())
	}
	require.NotZero(t, f.cmd.ProcessState.ExitCode())
	require.NotEqual(t, http.StatusOK, f.readyz())
	require.Equal(t, 1, strings.Count(f.lines(), "level=ERROR"), "%s", f.lines())
	require.Contains(t, f.lines(), "check the disk, then start it again")
}

func (f *faulty) readyz() int {
	r, err := http.Get("http://" + f.addr["http"] + "/readyz")
	if err != nil {
		return 0
	}
	_ = r.Body.Close()
	return r.StatusCode
}
