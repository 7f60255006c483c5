package queue

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// An extent is a header and up to ExtentEntries entries; entry i is that of offset first + i.
//
//	 0  4  magic    "PGQX"
//	 4  2  version  1
//	 6  2  count    entries that crc covers
//	 8  4  topic
//	12  4  queue
//	16  8  first    queue offset of entry 0, a multiple of ExtentEntries
//	24  4  crc      CRC32C of the first count entries
//	28  4  crc      CRC32C of the 28 bytes before
//	32 24  zero
//	56  .  entries
//
// A full extent (count = ExtentEntries) is never changed again. One that is not full is the tail of its
// queue: how many of its entries count, and their CRC, is said by the directory in the checkpoint, since
// later writes may have gone on in it.
const (
	ExtentBytes   = 4096
	extentHeader  = 56
	ExtentEntries = (ExtentBytes - extentHeader) / EntryBytes // 101

	extentMagic   = 0x58514750
	extentVersion = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type extentHead struct {
	key   Key
	first record.QueueOffset
	count int
	crc   uint32
}

func (h *extentHead) put(b []byte) {
	clear(b[:extentHeader])
	binary.LittleEndian.PutUint32(b, extentMagic)
	binary.LittleEndian.PutUint16(b[4:], extentVersion)
	binary.LittleEndian.PutUint16(b[6:], uint16(h.count))
	binary.LittleEndian.PutUint32(b[8:], uint32(h.key.Topic))
	binary.LittleEndian.PutUint32(b[12:], uint32(h.key.Queue))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.first))
	binary.LittleEndian.PutUint32(b[24:], h.crc)
	binary.LittleEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
}

// check compares the extent in b with what is expected of it: want.count entries of want.key from
// want.first. A full extent is checked against its own CRC, a tail against want.crc.
func (want *extentHead) check(b []byte) error {
	switch {
	case binary.LittleEndian.Uint32(b) != extentMagic:
		return mqerr.New(mqerr.Corrupt, "no extent header")
	case binary.LittleEndian.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli):
		return mqerr.New(mqerr.Corrupt, "extent header fails its checksum")
	case binary.LittleEndian.Uint16(b[4:]) != extentVersion:
		return mqerr.New(mqerr.Unsupported, "extent of version %d, this release knows %d", binary.LittleEndian.Uint16(b[4:]), extentVersion)
	}
	got := extentHead{
		key:   Key{Topic: record.TopicID(binary.LittleEndian.Uint32(b[8:])), Queue: record.QueueID(binary.LittleEndian.Uint32(b[12:]))},
		first: record.QueueOffset(binary.LittleEndian.Uint64(b[16:])),
		count: int(binary.LittleEndian.Uint16(b[6:])),
		crc:   binary.LittleEndian.Uint32(b[24:]),
	}
	if got.key != want.key || got.first != want.first || got.count < want.count {
		return mqerr.New(mqerr.Corrupt, "extent holds %d entries of topic %d queue %d from %d, not %d of topic %d queue %d from %d",
			got.count, got.key.Topic, got.key.Queue, got.first, want.count, want.key.Topic, want.key.Queue, want.first)
	}
	crc := want.crc
	if want.count == ExtentEntries {
		crc = got.crc
	}
	if crc32.Checksum(b[extentHeader:extentHeader+want.count*EntryBytes], castagnoli) != crc {
		return mqerr.New(mqerr.Corrupt, "entries of topic %d queue %d from %d fail their checksum", want.key.Topic, want.key.Queue, want.first)
	}
	return nil
}
