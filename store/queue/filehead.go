package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
)

// The head of an extent file fills the place of one extent:
//
//	 0  4  magic    "PGQF"
//	 4  2  version  1
//	 6  2  zero
//	 8  4  bytes of an extent
//	12  4  extents in the file, the head not counted
//	16  4  number of the file
//	20  4  crc      CRC32C of the 20 bytes before
//	24  .  zero
type fileHead struct {
	number  int
	perFile uint32
}

const (
	fileMagic    = 0x46514750
	fileVersion  = 1
	fileHeadSize = 24
)

func (h *fileHead) encode() []byte {
	b := make([]byte, fileHeadSize)
	binary.LittleEndian.PutUint32(b, fileMagic)
	binary.LittleEndian.PutUint16(b[4:], fileVersion)
	binary.LittleEndian.PutUint32(b[8:], ExtentBytes)
	binary.LittleEndian.PutUint32(b[12:], h.perFile)
	binary.LittleEndian.PutUint32(b[16:], uint32(h.number))
	binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
	return b
}

// readFileHead reads and checks the head of file n. Corrupt means that the file was never completed or
// is damaged.
func readFileHead(v vfs.File, n int) (fileHead, error) {
	b := make([]byte, fileHeadSize)
	if _, err := v.ReadAt(b, 0); errors.Is(err, io.EOF) {
		return fileHead{}, mqerr.New(mqerr.Corrupt, "queue file %d is shorter than its head", n)
	} else if err != nil {
		return fileHead{}, fmt.Errorf("queue file %d: %w", n, err)
	}
	h, err := decodeFileHead(b, n)
	if err != nil {
		return h, err
	}
	size, err := v.Size()
	if err == nil && size < int64(h.perFile+1)*ExtentBytes {
		err = mqerr.New(mqerr.Corrupt, "queue file %d has %d bytes and misses extents", n, size)
	}
	return h, err
}

func decodeFileHead(b []byte, n int) (fileHead, error) {
	h := fileHead{perFile: binary.LittleEndian.Uint32(b[12:]), number: int(binary.LittleEndian.Uint32(b[16:]))}
	switch version := binary.LittleEndian.Uint16(b[4:]); {
	case binary.LittleEndian.Uint32(b) != fileMagic || binary.LittleEndian.Uint32(b[20:]) != crc32.Checksum(b[:20], castagnoli):
		return h, mqerr.New(mqerr.Corrupt, "queue file %d has no valid head", n)
	case version != fileVersion || binary.LittleEndian.Uint32(b[8:]) != ExtentBytes:
		return h, mqerr.New(mqerr.Unsupported, "queue file %d has format version %d, this release knows %d: start the release of perigee that wrote it", n, version, fileVersion)
	case h.number != n || h.perFile == 0 || h.perFile > 1<<18:
		return h, mqerr.New(mqerr.Corrupt, "queue file %d says it is file %d with %d extents", n, h.number, h.perFile)
	}
	return h, nil
}
