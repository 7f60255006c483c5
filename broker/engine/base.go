package engine

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// baseSize is the length of the "base" section: epoch and newest store time, 8 bytes each.
const baseSize = 16

func encodeBase(epoch record.Epoch, stamp int64) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, baseSize), uint64(epoch))
	return binary.LittleEndian.AppendUint64(b, uint64(stamp))
}

func decodeBase(b []byte) (record.Epoch, int64, error) {
	if len(b) != baseSize {
		return 0, 0, mqerr.New(mqerr.Corrupt, "base section has %d bytes, not %d", len(b), baseSize)
	}
	return record.Epoch(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:])), nil
}
