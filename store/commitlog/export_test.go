package commitlog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/perigee-mq/perigee/store/record"
)

var errKilled = errors.New("the process was killed")

// Kill ends the log as a killed process does: nothing is synced any more.
func (l *Log) Kill() {
	l.failed.CompareAndSwap(nil, &failure{errKilled})
	_ = l.Close()
}

// EncodeMark makes a mark of any version.
func EncodeMark(version uint32, pos record.Pos) []byte {
	b := encodeMark(pos)
	binary.LittleEndian.PutUint32(b[4:], version)
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[:16], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// DecodeMark reads one slot of a mark.
var DecodeMark = decodeMark

// The list of holes as in its file.
var (
	EncodeHoles = encodeHoles
	DecodeHoles = decodeHoles
)
