package commitlog

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
	"github.com/perigee-mq/perigee/store/segment"
)

// HolesName is the file in the log's directory that lists its holes.
const HolesName = "holes.json"

// Hole is a part of the log that is damaged or missing, and that an operator chose to go on without. Its
// positions are never used again.
type Hole struct {
	From record.Pos `json:"from"` // the first position that is lost
	To   record.Pos `json:"to"`   // the log goes on here
	// File and Offset say where it begins; Why is what stood there instead of a record.
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Why    string `json:"why"`
}

// Bytes is how much of the log is lost.
func (h Hole) Bytes() int64 { return int64(h.To - h.From) }

// String names a hole for people.
func (h Hole) String() string {
	return fmt.Sprintf("%s at byte %d (position %d): %d bytes are lost, up to position %d", h.File, h.Offset, h.From, h.Bytes(), h.To)
}

const holesFormat = 1

// holesFile is the content of HolesName. Sum is the CRC32C of the bytes of the list, in hex: a hole that
// is not one would cost records.
type holesFile struct {
	Format int             `json:"format"`
	Holes  json.RawMessage `json:"holes"`
	Sum    string          `json:"sum"`
}

func sumOf(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func encodeHoles(holes []Hole) ([]byte, error) {
	list, err := json.Marshal(holes)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(holesFile{Format: holesFormat, Holes: list, Sum: sumOf(list)})
	return append(b, '\n'), err
}

func decodeHoles(b []byte) ([]Hole, error) {
	var f holesFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, mqerr.New(mqerr.Corrupt, "it cannot be read: %w", err)
	}
	if f.Format > holesFormat {
		return nil, mqerr.New(mqerr.Unsupported, "it has format %d, this release of perigee knows up to %d: start the release that wrote it, or a later one", f.Format, holesFormat)
	}
	if got := sumOf(f.Holes); f.Format < 1 || got != f.Sum {
		return nil, mqerr.New(mqerr.Corrupt, "its checksum is %q, its list gives %q", f.Sum, got)
	}
	var holes []Hole
	if err := json.Unmarshal(f.Holes, &holes); err != nil {
		return nil, mqerr.New(mqerr.Corrupt, "its list cannot be read: %w", err)
	}
	last := record.Pos(-1)
	for _, h := range holes {
		if h.From <= last || h.To <= h.From || h.From%record.Align != 0 || h.To%record.Align != 0 {
			return nil, mqerr.New(mqerr.Corrupt, "it has a hole from position %d to %d behind %d", h.From, h.To, last)
		}
		last = h.To
	}
	return holes, nil
}

// readHoles returns the holes of a directory, none if it has no such file.
func readHoles(f vfs.FS, dir string) ([]Hole, error) {
	path := filepath.Join(dir, HolesName)
	b, err := vfs.ReadFile(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	holes, err := decodeHoles(b)
	if err != nil {
		return nil, mqerr.New(mqerr.KindOf(err), "%s is damaged: %w; bring it back from a copy, or remove it and run perigee debug repair, which finds the holes again", path, err)
	}
	return holes, nil
}

// merge adds holes to others; those that touch become one.
func merge(holes []Hole, more ...Hole) []Hole {
	all := append(slices.Clone(holes), more...)
	slices.SortFunc(all, func(a, b Hole) int { return cmp.Compare(a.From, b.From) })
	out := all[:0]
	for _, h := range all {
		if n := len(out); n > 0 && h.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, h.To)
			continue
		}
		out = append(out, h)
	}
	return out
}

// holeAt returns the hole that a position is in.
func holeAt(holes []Hole, pos record.Pos) (Hole, bool) {
	i, _ := slices.BinarySearchFunc(holes, pos, func(h Hole, pos record.Pos) int {
		if h.To <= pos {
			return -1
		}
		return 1
	})
	if i < len(holes) && holes[i].From <= pos {
		return holes[i], true
	}
	return Hole{}, false
}

// Holes are the parts of the log that are known to be lost, oldest first. The slice must not be changed.
func (l *Log) Holes() []Hole {
	if h := l.holes.Load(); h != nil {
		return *h
	}
	return nil
}

// Lost tells whether a position is in a hole.
func (l *Log) Lost(pos record.Pos) bool {
	_, is := holeAt(l.Holes(), pos)
	return is
}

// Place is the file that holds a position, and where in it; the directory if no file does.
func (l *Log) Place(pos record.Pos) (file string, offset int64) {
	if s := l.find(pos); s != nil {
		return s.Path(), int64(pos - s.Base())
	}
	return l.o.Dir, int64(pos)
}

// Note adds holes to those that are known, durably. What is left of the damaged bytes is copied to a file
// for each hole first, which nobody reads but people. It is for Recover, and for a log that is open for
// reading only: a log that serves keeps what it found at the start.
func (l *Log) Note(holes ...Hole) error {
	for _, h := range holes {
		if err := l.keepBytes(h); err != nil {
			return fmt.Errorf("keep the damaged bytes of %s: %w", h, err)
		}
	}
	return l.keepHoles(merge(l.Holes(), holes...))
}

// keepHoles makes a list of holes the one that counts, durably.
func (l *Log) keepHoles(all []Hole) error {
	b, err := encodeHoles(all)
	if err != nil {
		return err
	}
	if err := vfs.ReplaceFile(l.o.FS, filepath.Join(l.o.Dir, HolesName), b); err != nil {
		return err
	}
	l.holes.Store(&all)
	return nil
}

// DamagedName is the file beside the segments with what was left of a hole.
func DamagedName(h Hole) string { return fmt.Sprintf("damaged-%020d-%020d", h.From, h.To) }

// readWhatIs is ReadAt with zeros for what the disk cannot read.
func readWhatIs(s *segment.Segment, b []byte, pos record.Pos) error {
	err := s.ReadAt(b, pos)
	if !mqerr.Is(err, mqerr.Corrupt) {
		return err
	}
	if len(b) > pageBytes {
		for lo := 0; lo < len(b); lo += pageBytes {
			if err := readWhatIs(s, b[lo:min(lo+pageBytes, len(b))], pos+record.Pos(lo)); err != nil {
				return err
			}
		}
		return nil
	}
	clear(b)
	return nil
}

// keepBytes copies what is in files of a hole. Gaps are left out.
func (l *Log) keepBytes(h Hole) (err error) {
	path := filepath.Join(l.o.Dir, DamagedName(h))
	f, err := l.o.FS.Create(path + vfs.TempSuffix)
	if err != nil {
		return err
	}
	done := int64(0)
	buf := make([]byte, scanBytes)
	for _, s := range *l.segs.Load() {
		for pos := max(h.From, s.Base()); pos < min(h.To, s.End()) && err == nil; {
			b := buf[:min(record.Pos(len(buf)), min(h.To, s.End())-pos)]
			if err = readWhatIs(s, b, pos); err == nil {
				_, err = f.WriteAt(b, done)
			}
			pos, done = pos+record.Pos(len(b)), done+int64(len(b))
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, l.o.FS.Remove(path+vfs.TempSuffix))
	}
	return l.o.FS.Rename(path+vfs.TempSuffix, path) // ReplaceFile of the list syncs the directory
}

// HeaderAt reads the header at a position into buf, of record.HeaderSize bytes; ok is false if what stands there
// is none, or none of that position, or the disk cannot read it. Nothing else of the record is looked at.
func (l *Log) HeaderAt(pos record.Pos, buf []byte) (h record.Header, ok bool, err error) {
	s := l.find(pos)
	if s == nil || pos+record.HeaderSize > s.End() {
		return h, false, nil
	}
	if err := s.ReadAt(buf, pos); err != nil {
		return h, false, unlessLost(err)
	}
	h, err = record.DecodeHeader(buf)
	return h, err == nil && h.Pos == pos && h.End() <= s.End(), nil
}
