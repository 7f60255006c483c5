package main

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpu is the CPU time that the process has used, from its own clock (ns resolution).
func (p *process) cpu() time.Duration { return clock(int32(^p.cmd.Process.Pid<<3 | 2)) }

// selfCPU is the CPU time that this process has used.
func selfCPU() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// machineCPU is the CPU time that all processes have used since boot, idle and waiting apart.
func machineCPU() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	ticks := int64(0)
	for i, f := range bytes.Fields(line) {
		if n, err := strconv.ParseInt(string(f), 10, 64); err == nil && i != 4 && i != 5 && i < 9 {
			ticks += n
		}
	}
	return time.Duration(ticks) * (time.Second / 100)
}
