package record

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

const magic = 0x4750 // "PG"

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	zeroCRC    [4]byte // read only
)

// Total is the size of a record with a body of so many bytes.
func Total(bodySize int) int { return (HeaderSize + bodySize + Align - 1) &^ (Align - 1) }

// Seal completes the record that fills b, whose body is in place: it writes the header with version and
// checksum, and zeros h.Tail bytes at the end. It returns the checksum.
func Seal(b []byte, h *Header) uint32 {
	binary.LittleEndian.PutUint16(b[0:], magic)
	b[2], b[3] = Version, byte(h.Type)
	binary.LittleEndian.PutUint32(b[4:], h.Size)
	binary.LittleEndian.PutUint16(b[12:], h.Flags)
	binary.LittleEndian.PutUint16(b[14:], h.Tail)
	binary.LittleEndian.PutUint64(b[16:], uint64(h.Pos))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.Epoch))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.Time))
	if h.Type != TypePad {
		clear(b[len(b)-int(h.Tail):])
	}
	sum := checksum(b)
	binary.LittleEndian.PutUint32(b[8:], sum)
	return sum
}

// SealPad writes the header of a Pad of h.Size bytes to b, HeaderSize bytes long. The rest of a Pad is
// never written: the segment is zero there.
func SealPad(b []byte, h *Header) uint32 {
	h.Type, h.Tail = TypePad, 0
	return Seal(b[:HeaderSize], h)
}

func checksum(b []byte) uint32 {
	sum := crc32.Update(0, castagnoli, b[:8])
	sum = crc32.Update(sum, castagnoli, zeroCRC[:])
	return crc32.Update(sum, castagnoli, b[12:])
}

// DecodeHeader reads a header and checks what can be told from it alone. The checksum, the version and
// the type are not looked at: see Check and Supported.
func DecodeHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, mqerr.New(mqerr.Corrupt, "record header of %d bytes, want %d", len(b), HeaderSize)
	}
	h := Header{
		Version: b[2],
		Type:    Type(b[3]),
		Size:    binary.LittleEndian.Uint32(b[4:]),
		CRC:     binary.LittleEndian.Uint32(b[8:]),
		Flags:   binary.LittleEndian.Uint16(b[12:]),
		Tail:    binary.LittleEndian.Uint16(b[14:]),
		Pos:     Pos(binary.LittleEndian.Uint64(b[16:])),
		Epoch:   Epoch(binary.LittleEndian.Uint64(b[24:])),
		Time:    int64(binary.LittleEndian.Uint64(b[32:])),
	}
	switch m := binary.LittleEndian.Uint16(b); {
	case m != magic:
		return h, mqerr.New(mqerr.Corrupt, "no record: magic is %#04x, want %#04x", m, magic)
	case h.Size < HeaderSize || h.Size%Align != 0:
		return h, mqerr.New(mqerr.Corrupt, "record size %d is no multiple of %d from %d", h.Size, Align, HeaderSize)
	case uint32(h.Tail) > h.Size-HeaderSize:
		return h, mqerr.New(mqerr.Corrupt, "record of %d bytes with %d zero bytes at its end", h.Size, h.Tail)
	}
	return h, nil
}

// Stored is how many bytes of the record its checksum covers and Body comes from: all, but of a Pad
// only the header.
func (h *Header) Stored() int {
	if h.Type == TypePad {
		return HeaderSize
	}
	return int(h.Size)
}

// Check compares the checksum of a record with its bytes, of which b holds at least h.Stored().
func (h *Header) Check(b []byte) error {
	if n := h.Stored(); len(b) < n {
		return mqerr.New(mqerr.Corrupt, "record of %d bytes is cut short after %d", n, len(b))
	} else if sum := checksum(b[:n]); sum != h.CRC {
		return mqerr.New(mqerr.Corrupt, "record checksum is %08x, its bytes give %08x", h.CRC, sum)
	}
	return nil
}

// Supported tells whether this release can read the record; ask after Check.
func (h *Header) Supported() error {
	if h.Version == 0 || h.Version > Version {
		return mqerr.New(mqerr.Unsupported, "record at %d has layout version %d, this release of perigee reads up to %d: start the release that wrote it, or a later one",
			h.Pos, h.Version, Version)
	}
	if h.Type == 0 || h.Type >= numTypes {
		return mqerr.New(mqerr.Unsupported, "record at %d is of type %d, this release of perigee knows types up to %d: start the release that wrote it, or a later one",
			h.Pos, uint8(h.Type), numTypes-1)
	}
	return nil
}

// Decode reads the record at the start of b and verifies it. Its body aliases b.
func Decode(b []byte) (Record, error) {
	h, err := DecodeHeader(b)
	if err != nil {
		return Record{}, err
	}
	if err := h.Check(b); err != nil {
		return Record{}, err
	}
	if err := h.Supported(); err != nil {
		return Record{}, err
	}
	return Record{Header: h, Body: h.body(b)}, nil
}

func (h *Header) body(b []byte) []byte {
	if h.Type == TypePad {
		return nil
	}
	end := int(h.Size) - int(h.Tail)
	return b[HeaderSize:end:end]
}
