// Package checkpoint is the saved state of a broker's views at one position of its log: one file per
// checkpoint, replaced atomically, the last two kept. docs/format/checkpoint.md draws it.
package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Version is the layout version of a file.
const Version = 1

const (
	magic  = "PGCK"
	suffix = ".ck"
	keep   = 2 // files
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Section is the state of one view.
type Section struct {
	Name string
	Data []byte
}

// Checkpoint is the state of all views at Pos: the log behind it brings them up to date.
type Checkpoint struct {
	Pos      record.Pos
	Sections []Section
}

// Section returns the data of a section. One that is missing is an error of kind Corrupt.
func (c *Checkpoint) Section(name string) ([]byte, error) {
	for _, s := range c.Sections {
		if s.Name == name {
			return s.Data, nil
		}
	}
	return nil, mqerr.New(mqerr.Corrupt, "checkpoint at %d has no section %s", c.Pos, name)
}

// Encode appends a checkpoint to dst:
//
//	 0  4  magic "PGCK"
//	 4  4  version
//	 8  8  position in the log
//	16  4  number of sections
//	   then for each: 2 length of the name, the name, 8 length of the data, the data
//	   last: 4 CRC32C of everything before
func (c *Checkpoint) Encode(dst []byte) []byte {
	le, from := binary.LittleEndian, len(dst)
	dst = append(dst, magic...)
	dst = le.AppendUint32(dst, Version)
	dst = le.AppendUint64(dst, uint64(c.Pos))
	dst = le.AppendUint32(dst, uint32(len(c.Sections)))
	for _, s := range c.Sections {
		dst = le.AppendUint16(dst, uint16(len(s.Name)))
		dst = append(dst, s.Name...)
		dst = le.AppendUint64(dst, uint64(len(s.Data)))
		dst = append(dst, s.Data...)
	}
	return le.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

const headBytes = 20

// Decode reads an encoded checkpoint. The sections alias b. Damage is an error of kind Corrupt, a
// newer version one of kind Unsupported.
func Decode(b []byte) (*Checkpoint, error) {
	le := binary.LittleEndian
	if len(b) < headBytes+4 || string(b[:4]) != magic {
		return nil, mqerr.New(mqerr.Corrupt, "not a checkpoint")
	}
	body := b[:len(b)-4]
	if le.Uint32(b[len(b)-4:]) != crc32.Checksum(body, castagnoli) {
		return nil, mqerr.New(mqerr.Corrupt, "checksum of a checkpoint does not fit")
	}
	if v := le.Uint32(b[4:]); v != Version {
		return nil, mqerr.New(mqerr.Unsupported, "checkpoint of version %d: start the release of perigee that wrote it", v)
	}
	c := &Checkpoint{Pos: record.Pos(le.Uint64(b[8:]))}
	n := le.Uint32(b[16:])
	rest := body[headBytes:]
	for range n {
		name, after, ok := cut(rest, 2)
		if !ok {
			return nil, mqerr.New(mqerr.Corrupt, "a checkpoint that ends in a name")
		}
		data, after, ok := cut(after, 8)
		if !ok {
			return nil, mqerr.New(mqerr.Corrupt, "a checkpoint that ends in section %q", name)
		}
		c.Sections = append(c.Sections, Section{Name: string(name), Data: data})
		rest = after
	}
	if len(rest) != 0 || c.Pos < 0 {
		return nil, mqerr.New(mqerr.Corrupt, "a checkpoint with %d bytes too many at position %d", len(rest), c.Pos)
	}
	return c, nil
}

// cut takes a run of bytes that its length, of width bytes, precedes.
func cut(b []byte, width int) (run, rest []byte, ok bool) {
	if len(b) < width {
		return nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint16(b))
	if width == 8 {
		n = binary.LittleEndian.Uint64(b)
	}
	if n > uint64(len(b)-width) {
		return nil, nil, false
	}
	return b[width : width+int(n)], b[width+int(n):], true
}

// Save writes a checkpoint into a directory, durably, and removes all but the last two.
func Save(f vfs.FS, dir string, c Checkpoint) error {
	if err := vfs.ReplaceFile(f, filepath.Join(dir, name(c.Pos)), c.Encode(nil)); err != nil {
		return fmt.Errorf("checkpoint at %d: %w", c.Pos, err)
	}
	names, err := list(f, dir)
	if err != nil {
		return err
	}
	for len(names) > keep {
		if err := f.Remove(filepath.Join(dir, names[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		names = names[1:]
	}
	return nil
}

// Load returns the newest checkpoint that is whole, nil if there is none. damaged has the error of
// each newer one that is not.
func Load(f vfs.FS, dir string) (c *Checkpoint, damaged []error, err error) {
	names, err := list(f, dir)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range slices.Backward(names) {
		b, err := vfs.ReadFile(f, filepath.Join(dir, n))
		if err != nil {
			return nil, damaged, err
		}
		c, err := Decode(b)
		switch {
		case err == nil && name(c.Pos) == n:
			return c, damaged, nil
		case mqerr.Is(err, mqerr.Unsupported):
			return nil, damaged, fmt.Errorf("%s: %w", n, err)
		case err == nil:
			err = mqerr.New(mqerr.Corrupt, "it says position %d", c.Pos)
		}
		damaged = append(damaged, fmt.Errorf("%s: %w", n, err))
	}
	return nil, damaged, nil
}

// Count is how many checkpoint files there are.
func Count(f vfs.FS, dir string) (int, error) {
	names, err := list(f, dir)
	return len(names), err
}

func name(p record.Pos) string { return fmt.Sprintf("%020d%s", p, suffix) }

// list returns the checkpoint files of a directory, oldest first.
func list(f vfs.FS, dir string) ([]string, error) {
	all, err := f.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return slices.DeleteFunc(all, func(n string) bool { return len(n) != 20+len(suffix) || !strings.HasSuffix(n, suffix) }), err
}
