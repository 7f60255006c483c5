package checkpoint

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// A file is a head, the sections and a foot. Integers are little-endian, CRCs are CRC32C.
//
//	head     0  4  magic    "PGCK"
//	         4  4  version  1
//	         8  8  position in the log
//	        16  4  number of sections
//	        20  4  crc      of the 20 bytes before
//	section  0  1  length of the name
//	         1  .  name
//	         .  8  length of the data
//	         .  4  crc      of the data
//	         .  .  data
//	foot     0  4  crc      of everything before
const (
	magic        = 0x4b434750
	version      = 1
	headBytes    = 24
	footBytes    = 4
	nameMax      = 255
	sectionBytes = 1 + 8 + 4 // without name and data
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c *Checkpoint) head() []byte {
	b := make([]byte, 0, headBytes)
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Pos))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(c.Sections)))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// head is what stands before the data of a section.
func (s *Section) head() []byte {
	b := make([]byte, 0, sectionBytes+len(s.Name))
	b = append(b, byte(len(s.Name)))
	b = append(b, s.Name...)
	size, sum := len(s.Data), crc32.Checksum(s.Data, castagnoli)
	for _, p := range s.More {
		size, sum = size+len(p), crc32.Update(sum, castagnoli, p)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(size))
	return binary.LittleEndian.AppendUint32(b, sum)
}

func (c *Checkpoint) validate() error {
	seen := map[string]bool{}
	for _, s := range c.Sections {
		if len(s.Name) == 0 || len(s.Name) > nameMax || seen[s.Name] {
			return mqerr.New(mqerr.Invalid, "checkpoint at %d: section name %q is empty, too long or there twice", c.Pos, s.Name)
		}
		seen[s.Name] = true
	}
	if c.Pos < 0 {
		return mqerr.New(mqerr.Invalid, "checkpoint at %d", c.Pos)
	}
	return nil
}

// pieces gives the file to put, piece by piece, so that large sections are not copied.
func (c *Checkpoint) pieces(put func([]byte) error) error {
	sum := uint32(0)
	next := func(b []byte) error {
		sum = crc32.Update(sum, castagnoli, b)
		return put(b)
	}
	if err := next(c.head()); err != nil {
		return err
	}
	for i := range c.Sections {
		if err := next(c.Sections[i].head()); err != nil {
			return err
		}
		if err := next(c.Sections[i].Data); err != nil {
			return err
		}
		for _, p := range c.Sections[i].More {
			if err := next(p); err != nil {
				return err
			}
		}
	}
	return put(binary.LittleEndian.AppendUint32(nil, sum))
}

// Encode returns the content of the file.
func (c *Checkpoint) Encode() []byte {
	var all []byte
	_ = c.pieces(func(b []byte) error { all = append(all, b...); return nil })
	return all
}

// Decode reads the content of a file. The sections alias b. Damage is of kind Corrupt, a file of a later
// release of kind Unsupported.
func Decode(b []byte) (*Checkpoint, error) {
	if len(b) < headBytes+footBytes || binary.LittleEndian.Uint32(b) != magic {
		return nil, mqerr.New(mqerr.Corrupt, "no checkpoint head in %d bytes", len(b))
	}
	if binary.LittleEndian.Uint32(b[20:]) != crc32.Checksum(b[:20], castagnoli) {
		return nil, mqerr.New(mqerr.Corrupt, "the head fails its checksum")
	}
	if v := binary.LittleEndian.Uint32(b[4:]); v != version {
		return nil, mqerr.New(mqerr.Unsupported, "checkpoint of version %d, this release knows %d: start the release of perigee that wrote it", v, version)
	}
	c := &Checkpoint{Pos: record.Pos(binary.LittleEndian.Uint64(b[8:]))}
	n := binary.LittleEndian.Uint32(b[16:])
	body, foot := b[:len(b)-footBytes], b[len(b)-footBytes:]
	rest := body[headBytes:]
	for range n {
		s, after, err := decodeSection(rest)
		if err != nil {
			return nil, err
		}
		c.Sections = append(c.Sections, s)
		rest = after
	}
	if len(rest) > 0 || c.validate() != nil {
		return nil, mqerr.New(mqerr.Corrupt, "the %d sections of the checkpoint at %d do not fit the file", n, c.Pos)
	}
	if binary.LittleEndian.Uint32(foot) != crc32.Checksum(body, castagnoli) {
		return nil, mqerr.New(mqerr.Corrupt, "the file fails its checksum")
	}
	return c, nil
}

func decodeSection(b []byte) (s Section, rest []byte, err error) {
	if len(b) < sectionBytes || len(b) < sectionBytes+int(b[0]) {
		return s, nil, mqerr.New(mqerr.Corrupt, "the file ends within a section head")
	}
	n := 1 + int(b[0])
	s.Name, b = string(b[1:n]), b[n:]
	size, crc, b := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), b[12:]
	if size > uint64(len(b)) {
		return s, nil, mqerr.New(mqerr.Corrupt, "the file ends within section %q", s.Name)
	}
	s.Data = b[:size:size]
	if crc32.Checksum(s.Data, castagnoli) != crc {
		return s, nil, mqerr.New(mqerr.Corrupt, "section %q fails its checksum", s.Name)
	}
	return s, b[size:], nil
}
