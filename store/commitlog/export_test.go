package commitlog

import "errors"

var errKilled = errors.New("the process was killed")

// Kill ends the log as a killed process does: nothing is synced any more.
func (l *Log) Kill() {
	l.failed.CompareAndSwap(nil, &failure{errKilled})
	_ = l.Close()
}
