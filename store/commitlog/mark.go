package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// MarkName is the file in the log's directory that remembers how far the log was durable.
const MarkName = "durable"

// A mark is two slots, markSlot bytes apart so that a torn write spoils one only:
//
//	 0  4  magic "PGDM"
//	 4  4  version
//	 8  8  position: everything below was durable when this was written
//	16  4  CRC32C of the bytes before
//
// It is written without a sync: whatever of it is found later was true, and the newest of the two
// counts. No mark at all says nothing.
const (
	markMagic   = 0x4d444750
	markVersion = 1
	markBytes   = 20
	markSlot    = 512
)

type mark struct {
	file vfs.File
	slot int64
}

func encodeMark(pos record.Pos) []byte {
	b := make([]byte, 0, markBytes)
	b = binary.LittleEndian.AppendUint32(b, markMagic)
	b = binary.LittleEndian.AppendUint32(b, markVersion)
	b = binary.LittleEndian.AppendUint64(b, uint64(pos))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// decodeMark returns the position of a slot; whole is false if it holds none.
func decodeMark(b []byte) (pos record.Pos, whole bool, err error) {
	if len(b) < markBytes || binary.LittleEndian.Uint32(b) != markMagic ||
		binary.LittleEndian.Uint32(b[16:]) != crc32.Checksum(b[:16], crc32.MakeTable(crc32.Castagnoli)) {
		return 0, false, nil
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != markVersion {
		return 0, false, mqerr.New(mqerr.Unsupported, "it has version %d, this release of perigee reads version %d: start the release that wrote it, or a later one", v, markVersion)
	}
	return max(0, record.Pos(binary.LittleEndian.Uint64(b[8:]))), true, nil
}

// readMark returns the mark of a directory; known is false if there is none, or none that is whole.
func readMark(f vfs.FS, dir string) (pos record.Pos, known bool, err error) {
	path := filepath.Join(dir, MarkName)
	file, err := f.OpenRead(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer file.Close()
	data := make([]byte, markSlot+markBytes)
	n, err := file.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, false, fmt.Errorf("read %s: %w", path, err)
	}
	data = data[:n]
	for lo := 0; lo < len(data); lo += markSlot {
		slot, whole, err := decodeMark(data[lo:])
		if err != nil {
			return 0, false, fmt.Errorf("%s: %w", path, err)
		}
		pos, known = max(pos, slot), known || whole
	}
	return pos, known, nil
}

// startMark makes the mark say pos, durably, and opens it for more. The file has both slots from the start,
// so that no later write needs space. On a full disk the mark of the last start is gone on with: it says less,
// or more if the log was cut since, which cannot be.
func startMark(f vfs.FS, dir string, pos record.Pos) (*mark, error) {
	path := filepath.Join(dir, MarkName)
	both := append(encodeMark(pos), make([]byte, markSlot)...)
	full := vfs.ReplaceFile(f, path, both)
	if full != nil && !vfs.IsFull(full) {
		return nil, full
	}
	file, err := f.Open(path)
	if err != nil {
		return nil, errors.Join(full, err)
	}
	return &mark{file: file}, nil
}

// set notes a position. A disk without space costs the note only: an older one says less, and nothing false.
func (m *mark) set(pos record.Pos) error {
	m.slot = markSlot - m.slot
	if _, err := m.file.WriteAt(encodeMark(pos), m.slot); err != nil && !vfs.IsFull(err) {
		return fmt.Errorf("write %s: %w", MarkName, err)
	}
	return nil
}

// lower makes the mark say an older position, durably. While that goes on it says the one or the other, or nothing.
// It needs no space.
func (m *mark) lower(pos record.Pos) error {
	for _, slot := range []int64{0, markSlot} {
		if _, err := m.file.WriteAt(encodeMark(pos), slot); err != nil {
			return fmt.Errorf("write %s: %w", MarkName, err)
		}
	}
	return m.file.Sync()
}

func (m *mark) close(sync bool) error {
	if !sync {
		return m.file.Close()
	}
	return errors.Join(m.file.Sync(), m.file.Close())
}
