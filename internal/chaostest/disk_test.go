package chaostest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// blkio is where the kernel lets a disk be slow for some processes: what they sync themselves is slowed down.
const blkio = "/sys/fs/cgroup/blkio"

// throttle makes the disk of directories slow for chosen processes.
type throttle struct {
	device string // major:minor
	none   string // why there is none; empty: there is one
	made   []string
}

func newThrottle(dir string) *throttle {
	t := &throttle{}
	var st syscall.Stat_t
	if _, err := os.Stat(filepath.Join(blkio, "blkio.throttle.write_iops_device")); err != nil {
		t.none = err.Error()
	} else if err := syscall.Stat(dir, &st); err != nil {
		t.none = err.Error()
	} else if major := unix.Major(uint64(st.Dev)); major == 0 {
		t.none = dir + " is on no disk"
	} else {
		t.device = fmt.Sprintf("%d:%d", major, unix.Minor(uint64(st.Dev)))
	}
	return t
}

// slow lets a process write only so often in a second, until it ends or fast is called.
func (t *throttle) slow(name string, pid, iops int) error {
	group := filepath.Join(blkio, fmt.Sprintf("perigee-chaos-%s-%d", name, pid))
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	t.made = append(t.made, group)
	if err := os.WriteFile(filepath.Join(group, "blkio.throttle.write_iops_device"), fmt.Appendf(nil, "%s %d", t.device, iops), 0); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// fast undoes all of slow.
func (t *throttle) fast() error {
	for _, group := range t.made {
		procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if err != nil {
			return err
		}
		// What waits is let go first.
		if err := os.WriteFile(filepath.Join(group, "blkio.throttle.write_iops_device"), fmt.Appendf(nil, "%s 0", t.device), 0); err != nil {
			return err
		}
		for pid := range strings.FieldsSeq(string(procs)) {
			_ = os.WriteFile(filepath.Join(blkio, "cgroup.procs"), []byte(pid), 0) // it may have ended
		}
		if err := eventually(5*time.Second, func() error { return os.Remove(group) }); err != nil {
			return err
		}
	}
	t.made = nil
	return nil
}
