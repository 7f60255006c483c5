package simtest

import "fmt"

// traceMax is how many lines of what happened are kept.
const traceMax = 20000

// note takes down what happened, with the simulated time.
func (s *sim) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteLocked(format, args...)
}

func (s *sim) noteLocked(format string, args ...any) {
	if len(s.trace) < traceMax {
		s.trace = append(s.trace, fmt.Sprintf("%8.3f %s", boot().Seconds(), fmt.Sprintf(format, args...)))
	}
}

// fail notes a fault of what is tested. The first ones count.
func (s *sim) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(format, args...)
}

func (s *sim) failLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.noteLocked("FAULT %s", text)
	if len(s.faults) < 20 {
		s.faults = append(s.faults, text)
	}
}
