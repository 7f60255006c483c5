package index

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sort"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// A file of a run begins with its head:
//
//	 0  4  magic    "PGIX"
//	 4  2  version  1
//	 6  2  zero
//	 8  4  crc      CRC32C of the head and the fence, with this field zero
//	12  4  entries
//	16  8  position of the first message
//	24  8  position of the last message
//	32  8  store time of the first message, ms since 1970
//	40  8  store time of the last message
//	48  8  sum over the entries
//
// Then the fence: for each block 8 bytes, the hash of its first entry. Then the blocks, of blockBytes each:
//
//	0  4  crc      CRC32C of the rest of the block
//	4 12  entries: 8 bytes hash, 4 bytes (position - position of the first message) / 8,
//	      by hash, then position; the last block may have fewer and is zero behind them
const (
	fileMagic    = 0x58494750
	fileVersion  = 1
	headBytes    = 56
	entryBytes   = 12
	blockEntries = 341
	blockBytes   = 4 + blockEntries*entryBytes // 4096
	fileSuffix   = ".index"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func fileName(first record.Pos) string { return fmt.Sprintf("%020d%s", int64(first), fileSuffix) }

func blocksOf(entries int) int { return (entries + blockEntries - 1) / blockEntries }

// frontSize is the length of head and fence.
func frontSize(entries int) int { return headBytes + 8*blocksOf(entries) }

func fileSize(entries int) int64 {
	return int64(frontSize(entries)) + int64(blocksOf(entries))*blockBytes
}

// encodeFile is the whole file of a run; it sorts the entries.
func encodeFile(s *span, entries []entry) []byte {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.pos, b.pos)) })
	b := make([]byte, fileSize(len(entries)))
	front, blocks := b[:frontSize(len(entries))], b[frontSize(len(entries)):]
	for i, e := range entries {
		if i%blockEntries == 0 {
			binary.LittleEndian.PutUint64(front[headBytes+8*(i/blockEntries):], e.hash)
		}
		at := blocks[i/blockEntries*blockBytes+4+i%blockEntries*entryBytes:]
		binary.LittleEndian.PutUint64(at, e.hash)
		binary.LittleEndian.PutUint32(at[8:], uint32((e.pos-s.first)/record.Align))
	}
	for block := range slices.Chunk(blocks, blockBytes) {
		binary.LittleEndian.PutUint32(block, crc32.Checksum(block[4:], castagnoli))
	}
	s.putHead(front)
	return b
}

// putHead writes the head and the checksum of head and fence.
func (s *span) putHead(front []byte) {
	binary.LittleEndian.PutUint32(front, fileMagic)
	binary.LittleEndian.PutUint16(front[4:], fileVersion)
	binary.LittleEndian.PutUint32(front[12:], s.count)
	for i, v := range []uint64{uint64(s.first), uint64(s.last), uint64(s.min), uint64(s.max), s.sum} {
		binary.LittleEndian.PutUint64(front[16+8*i:], v)
	}
	binary.LittleEndian.PutUint32(front[8:], crc32.Checksum(front, castagnoli))
}

// checkFront tells whether head and fence are those of the run.
func (s *span) checkFront(front []byte) error {
	want := make([]byte, len(front))
	copy(want[headBytes:], front[headBytes:])
	s.putHead(want)
	if string(want) != string(front) {
		return mqerr.New(mqerr.Corrupt, "it is damaged or holds another part of the log")
	}
	return nil
}

// readFile returns the positions of the messages with a hash in the file of a run, in order. Damage, or the
// file of another run, is Corrupt; no file is fs.ErrNotExist.
func (s *span) readFile(fs vfs.FS, path string, hash uint64) ([]record.Pos, error) {
	f, err := fs.OpenRead(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found, err := s.find(f, hash)
	if err != nil {
		return nil, mqerr.New(mqerr.KindOf(err), "%s: %w", path, err)
	}
	return found, nil
}

func (s *span) find(f io.ReaderAt, hash uint64) ([]record.Pos, error) {
	front := make([]byte, frontSize(int(s.count)))
	if err := readAt(f, front, 0); err != nil {
		return nil, err
	}
	if err := s.checkFront(front); err != nil {
		return nil, err
	}
	n := blocksOf(int(s.count))
	fence := func(i int) uint64 { return binary.LittleEndian.Uint64(front[headBytes+8*i:]) }
	var found []record.Pos
	block := make([]byte, blockBytes)
	// The block before the first one that begins at hash or later may end with it.
	from := max(0, sort.Search(n, func(i int) bool { return fence(i) >= hash })-1)
	for i := from; i < n && fence(i) <= hash; i++ {
		if err := readAt(f, block, int64(len(front)+i*blockBytes)); err != nil {
			return nil, err
		}
		if binary.LittleEndian.Uint32(block) != crc32.Checksum(block[4:], castagnoli) {
			return nil, mqerr.New(mqerr.Corrupt, "block %d is damaged", i)
		}
		found = s.findIn(found, block[4:], min(blockEntries, int(s.count)-i*blockEntries), hash)
	}
	return found, nil
}

// findIn appends the positions that a block of n entries has for a hash.
func (s *span) findIn(found []record.Pos, block []byte, n int, hash uint64) []record.Pos {
	at := func(i int) uint64 { return binary.LittleEndian.Uint64(block[i*entryBytes:]) }
	for i := sort.Search(n, func(i int) bool { return at(i) >= hash }); i < n && at(i) == hash; i++ {
		pos := s.first + record.Pos(binary.LittleEndian.Uint32(block[i*entryBytes+8:]))*record.Align
		found = appendNew(found, pos)
	}
	return found
}

// appendNew appends a position unless it is the last one: a message may have a key twice.
func appendNew(found []record.Pos, pos record.Pos) []record.Pos {
	if n := len(found); n > 0 && found[n-1] == pos {
		return found
	}
	return append(found, pos)
}

// readAt fills b; a file that ends before, or that the disk cannot read, is Corrupt.
func readAt(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	switch {
	case errors.Is(err, io.EOF):
		return mqerr.New(mqerr.Corrupt, "it ends before byte %d", off+int64(len(b)))
	case vfs.Unreadable(err):
		return mqerr.New(mqerr.Corrupt, "read %d bytes at %d: %w", len(b), off, err)
	}
	return err
}

// check tells whether b is the whole file of the run: every block is, the entries are sorted, and they add up.
func (s *span) check(b []byte) error {
	if int64(len(b)) != fileSize(int(s.count)) {
		return mqerr.New(mqerr.Corrupt, "it has %d bytes, %d entries take %d", len(b), s.count, fileSize(int(s.count)))
	}
	front, blocks := b[:frontSize(int(s.count))], b[frontSize(int(s.count)):]
	if err := s.checkFront(front); err != nil {
		return err
	}
	sum, before, left := uint64(0), entry{}, int(s.count)
	for n := 0; left > 0; n++ {
		block := blocks[n*blockBytes : (n+1)*blockBytes]
		if binary.LittleEndian.Uint32(block) != crc32.Checksum(block[4:], castagnoli) {
			return mqerr.New(mqerr.Corrupt, "block %d is damaged", n)
		}
		for i := range min(left, blockEntries) {
			at := block[4+i*entryBytes:]
			e := entry{binary.LittleEndian.Uint64(at), s.first + record.Pos(binary.LittleEndian.Uint32(at[8:]))*record.Align}
			if i == 0 && e.hash != binary.LittleEndian.Uint64(front[headBytes+8*n:]) || e.hash < before.hash || e.hash == before.hash && e.pos < before.pos {
				return mqerr.New(mqerr.Corrupt, "the entries of block %d are not sorted", n)
			}
			sum += mix(e.hash ^ mix(uint64(e.pos)))
			before = e
		}
		left -= min(left, blockEntries)
	}
	if sum != s.sum {
		return mqerr.New(mqerr.Corrupt, "its entries do not add up")
	}
	return nil
}
