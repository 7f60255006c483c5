package chaostest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/perigee-mq/perigee/internal/testbin"
)

// cage runs this test again in network, mount and process namespaces of its own, in which it makes those of the cluster. They
// and all processes in them end with it, whatever becomes of it. It tells the exit code, and whether that was possible.
func cage() (code int, done bool) {
	why := func(err error) (int, bool) {
		fmt.Printf("no network namespaces, so no faults of the network: %v\n", err)
		return 0, false
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return why(err)
	}
	bin, err := testbin.Path() // once, for both
	if err != nil {
		fmt.Println("FAIL:", err)
		return 1, true
	}
	defer testbin.Remove()
	runtime.LockOSThread() // its end would be taken for that of the test
	probe := exec.Command("ip", "link", "add", "pg0", "type", "veth", "peer", "name", "pg1")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := probe.CombinedOutput(); err != nil {
		return why(fmt.Errorf("%w: %s", err, out))
	}
	again := exec.Command("/proc/self/exe", append(os.Args[1:], "-caged")...)
	again.Stdout, again.Stderr, again.Env = os.Stdout, os.Stderr, append(os.Environ(), "TEST_PERIGEE_BIN="+bin)
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err = again.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(1, exit.ExitCode()), true
	}
	if err != nil {
		return why(err)
	}
	return 0, true
}

// prepare makes the cage's own files: names of network namespaces that nobody else sees, and a router.
func prepare() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("none", "/run/netns", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("/run/netns: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	if err := ip("link", "set", "lo", "up"); err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// mountSmall makes a directory a disk of its own.
func mountSmall(dir string, bytes int64) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
}

func unmountSmall(dir string) error { return syscall.Unmount(dir, 0) }
