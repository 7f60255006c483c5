package queue

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/store/record"
)

// Entry is one message of a queue, EntryBytes bytes on disk, little-endian:
//
//	 0  8  Pos        position of the record in the CommitLog
//	 8  4  Size       bytes of the record, header included
//	12  4  unused, 0
//	16  8  Time       visible since, ms since 1970; never goes back within a queue
//	24  8  TagHash    0: no tag
//	32  8  GroupHash  message group, 0: none
type Entry struct {
	Pos       record.Pos
	Size      uint32
	Time      int64
	TagHash   uint64
	GroupHash uint64
}

// EntryBytes is the length of an Entry on disk.
const EntryBytes = 40

func (e *Entry) put(b []byte) {
	_ = b[EntryBytes-1]
	binary.LittleEndian.PutUint64(b, uint64(e.Pos))
	binary.LittleEndian.PutUint32(b[8:], e.Size)
	binary.LittleEndian.PutUint32(b[12:], 0)
	binary.LittleEndian.PutUint64(b[16:], uint64(e.Time))
	binary.LittleEndian.PutUint64(b[24:], e.TagHash)
	binary.LittleEndian.PutUint64(b[32:], e.GroupHash)
}

func (e *Entry) get(b []byte) {
	_ = b[EntryBytes-1]
	e.Pos = record.Pos(binary.LittleEndian.Uint64(b))
	e.Size = binary.LittleEndian.Uint32(b[8:])
	e.Time = int64(binary.LittleEndian.Uint64(b[16:]))
	e.TagHash = binary.LittleEndian.Uint64(b[24:])
	e.GroupHash = binary.LittleEndian.Uint64(b[32:])
}

// getAll decodes as many entries of b as fit into dst and returns how many.
func getAll(dst []Entry, b []byte) int {
	n := min(len(dst), len(b)/EntryBytes)
	for i := range n {
		dst[i].get(b[i*EntryBytes:])
	}
	return n
}
