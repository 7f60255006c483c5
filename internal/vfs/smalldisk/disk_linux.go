package smalldisk

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func mount(dir string, bytes int64) error {
	return unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes))
}

// unmount lets go of the disk in any case; an error says that somebody was still in it.
func unmount(dir string) error {
	err := unix.Unmount(dir, 0)
	if err != nil {
		err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
	}
	return err
}

func allocate(f *os.File, from, n int64) error { return unix.Fallocate(int(f.Fd()), 0, from, n) }

func free(dir string) (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return int64(st.Bavail) * st.Bsize, err
}
