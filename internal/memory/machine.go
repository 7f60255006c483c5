package memory

import (
	"bytes"
	"path"
	"strconv"
	"strings"
)

// machine is how much memory there is for this process, in bytes: the least of the machine's and of the limits
// of its control groups. 0 if nothing tells.
func machine(read func(string) ([]byte, error)) int64 {
	least := int64(0)
	take := func(n int64) {
		if n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	if b, err := read("/proc/meminfo"); err == nil {
		take(memTotal(b))
	}
	if b, err := read("/proc/self/cgroup"); err == nil {
		for _, file := range groupFiles(string(b)) {
			if v, err := read(file); err == nil {
				if n, err := strconv.ParseInt(strings.TrimSpace(string(v)), 10, 64); err == nil { // "max": no limit
					take(n)
				}
			}
		}
	}
	return least
}

// memTotal reads MemTotal of /proc/meminfo.
func memTotal(b []byte) int64 {
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) >= 2 && f[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(f[1], 10, 64); err == nil && kib < 1<<50 {
				return kib << 10
			}
		}
	}
	return 0
}

// groupFiles are the files with limits of the control groups that /proc/self/cgroup names, and of those around
// them.
func groupFiles(text string) (files []string) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		root, name := "", ""
		switch {
		case f[0] == "0" && f[1] == "":
			root, name = "/sys/fs/cgroup", "memory.max"
		case strings.Contains(","+f[1]+",", ",memory,"):
			root, name = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			files = append(files, path.Join(root, dir, name))
			if dir == "/" {
				break
			}
		}
	}
	return files
}
