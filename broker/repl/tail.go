package repl

import (
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/replica"
)

// headerAt reads a header; behind is the end of the hole that a position lies in, or 0.
func headerAt(log *commitlog.Log, pos record.Pos, buf []byte) (h record.Header, behind record.Pos, err error) {
	for _, hole := range log.Holes() {
		if pos >= hole.From && pos < hole.To {
			return h, hole.To, nil
		}
	}
	h, ok, err := log.HeaderAt(pos, buf)
	if err == nil && !ok {
		file, at := log.Place(pos)
		err = mqerr.New(mqerr.Corrupt, "%s: no record at offset %d (position %d)", file, at, pos)
	}
	return h, 0, err
}

// tailOf is the last record of a log that is not padding, of which a handshake compares the checksum. Unknown if it
// can't be read.
func tailOf(log *commitlog.Log) replica.Tail {
	last := log.Last()
	if last.Pos < 0 {
		return replica.Tail{}
	}
	h, _, err := headerAt(log, last.Pos, make([]byte, record.HeaderSize))
	if err != nil || h.CRC != last.CRC {
		return replica.Tail{}
	}
	return replica.Tail{Pos: last.Pos, Size: h.Size, CRC: h.CRC}
}
