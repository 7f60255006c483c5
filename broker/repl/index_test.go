package repl

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// readIndex finds where the epochs of a recovered log lie, by the headers of its records. Files that begin
// in the same epoch as the file behind them hold no other and are not read. Nothing may be appended meanwhile.
func readIndex(log *commitlog.Log) (*replica.Index, error) {
	files, end := log.Segments(), log.Written()
	x := replica.New(log.First())
	buf := make([]byte, record.HeaderSize)
	for i, f := range files {
		next := end
		if i+1 < len(files) {
			next = files[i+1].Base
		}
		pos := max(f.Base, x.End())
		for pos < min(next, end) {
			h, behind, err := headerAt(log, pos, buf)
			if err != nil {
				return nil, err
			}
			if behind > pos { // a hole belongs to the epoch before it
				if x.Epoch() == 0 {
					return nil, mqerr.New(mqerr.Corrupt, "the log is lost from its first position %d to %d: this replica has to begin anew", pos, behind)
				}
				if err := x.Append(x.Epoch(), pos, behind); err != nil {
					return nil, err
				}
				pos = behind
				continue
			}
			to := h.End()
			if pos == f.Base && next < end {
				if n, _, err := headerAt(log, next, buf); err == nil && n.Epoch == h.Epoch {
					to = next
				}
			}
			if err := x.Append(h.Epoch, pos, to); err != nil {
				return nil, mqerr.New(mqerr.Corrupt, "epochs of the log: %w", err)
			}
			pos = to
		}
	}
	return x, nil
}
