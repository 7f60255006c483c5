// Package segment is one file of the CommitLog: created at its full length, appended by pwrite, read
// through a mapping or by pread.
//
// A segment is named by its first position in 20 digits. A file of that name is complete: it was
// allocated and synced under another name before, and its name is durable before anybody writes to it.
// There is no header inside: byte 0 is the first byte of the record at the first position, and each
// record carries the format version (docs/format/segment.md).
//
// Readers hold counted references. Whoever closes or unmaps a segment only lets go of it: the last
// reader to leave unmaps and closes.
package segment

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Segment is one file. All methods may be called concurrently; two writes must not overlap.
type Segment struct {
	fs   vfs.FS
	path string
	base record.Pos
	size int64
	odd  int64 // bytes of the file behind size
	file vfs.File

	inUse counted // the file: one for the owner, one per ReadAt, one for the mapping
	gone  chan struct{}

	mu     sync.Mutex // guards what follows
	view   atomic.Pointer[mapping]
	closed bool
	then   func() // of CloseThen
	err    error  // of unmapping and closing; read after gone
}

// mapping is the mapped file. in counts one for the segment and one per View.
type mapping struct {
	data  []byte
	in    counted
	unmap func() error
}

// nameDigits is the length of a segment's name.
const nameDigits = 20

// Name is the file name of the segment whose first position is base.
func Name(base record.Pos) string { return fmt.Sprintf("%0*d", nameDigits, base) }

// ParseName is the reverse of Name; ok is false for the name of any other file.
func ParseName(name string) (base record.Pos, ok bool) {
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil || n < 0 || len(name) != nameDigits || name != Name(record.Pos(n)) {
		return 0, false
	}
	return record.Pos(n), true
}

// Create makes a segment of size zero bytes. When it returns the file is durable, name and length
// included. A file left by a Create that did not finish ends in vfs.TempSuffix and is of no use.
func Create(fs vfs.FS, dir string, base record.Pos, size int64) (*Segment, error) {
	path := filepath.Join(dir, Name(base))
	temp := path + vfs.TempSuffix
	f, err := fs.Create(temp)
	if err != nil {
		return nil, err
	}
	if err := allocate(fs, f, temp, path, size); err != nil {
		return nil, errors.Join(err, f.Close(), dropTemp(fs, temp))
	}
	return newSegment(fs, path, base, size, f), nil
}

func allocate(fs vfs.FS, f vfs.File, temp, path string, size int64) error {
	if err := f.Allocate(size); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := fs.Rename(temp, path); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}

// dropTemp removes the temporary file so that a full disk gets its blocks back.
func dropTemp(fs vfs.FS, temp string) error {
	if _, err := fs.Stat(temp); err != nil {
		return nil // renamed already
	}
	return fs.Remove(temp)
}

// Open opens the segment of that base for reading and writing, or for reading only.
func Open(fs vfs.FS, dir string, base record.Pos, readOnly bool) (*Segment, error) {
	s, err := OpenCut(fs, dir, base, readOnly)
	if err == nil && (s.size < record.HeaderSize || s.odd != 0) {
		err = mqerr.New(mqerr.Corrupt, "%s has %d bytes, and no segment is that long: it was cut or is not of this log; bring it back from a copy", s.path, s.size+s.odd)
		s.Close()
		return nil, err
	}
	return s, err
}

// OpenCut is Open for a file that may have been cut: bytes at its end that are no whole unit of
// record.Align do not count.
func OpenCut(fs vfs.FS, dir string, base record.Pos, readOnly bool) (*Segment, error) {
	path := filepath.Join(dir, Name(base))
	open := fs.Open
	if readOnly {
		open = fs.OpenRead
	}
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := newSegment(fs, path, base, size-size%record.Align, f)
	s.odd = size % record.Align
	return s, nil
}

func newSegment(fs vfs.FS, path string, base record.Pos, size int64, f vfs.File) *Segment {
	s := &Segment{fs: fs, path: path, base: base, size: size, file: f, gone: make(chan struct{})}
	s.inUse.init(s.closeFile)
	return s
}

// Base is the first position.
func (s *Segment) Base() record.Pos { return s.base }

// End is the position after the last.
func (s *Segment) End() record.Pos { return s.base + record.Pos(s.size) }

// Path is the name of the file, with its directory.
func (s *Segment) Path() string { return s.path }

// Where names a position for people: file and offset.
func (s *Segment) Where(pos record.Pos) string {
	return fmt.Sprintf("%s at byte %d (position %d)", s.path, pos-s.base, pos)
}

// WriteAt writes b at a position. It makes nothing durable.
func (s *Segment) WriteAt(b []byte, pos record.Pos) error {
	if pos < s.base || pos+record.Pos(len(b)) > s.End() {
		return mqerr.New(mqerr.Internal, "%s: write of %d bytes at position %d is outside", s.path, len(b), pos)
	}
	if _, err := s.file.WriteAt(b, int64(pos-s.base)); err != nil {
		return fmt.Errorf("write %d bytes to %s: %w", len(b), s.Where(pos), err)
	}
	return nil
}

// Sync makes everything written before durable.
func (s *Segment) Sync() error {
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.path, err)
	}
	return nil
}

// Clear makes everything from pos to the end read as zero; Sync makes that durable.
func (s *Segment) Clear(pos record.Pos) error {
	off := int64(pos - s.base)
	if err := s.file.ZeroRange(off, s.size-off); err != nil {
		return fmt.Errorf("clear %s: %w", s.Where(pos), err)
	}
	return nil
}

// ReadAt fills b from a position with pread, which lets other goroutines run while the disk works. Bytes that the
// disk cannot read, or that were cut off the file, are Corrupt.
func (s *Segment) ReadAt(b []byte, pos record.Pos) error {
	if !s.inUse.get() {
		return errClosed(s.path)
	}
	defer s.inUse.put()
	if pos < s.base || pos+record.Pos(len(b)) > s.End() {
		return mqerr.New(mqerr.Corrupt, "%s: %d bytes at position %d are outside", s.path, len(b), pos)
	}
	_, err := s.file.ReadAt(b, int64(pos-s.base))
	switch {
	case err == nil:
		return nil
	case vfs.Unreadable(err):
		return mqerr.New(mqerr.Corrupt, "read %d bytes of %s: %w", len(b), s.Where(pos), err)
	}
	return fmt.Errorf("read %d bytes of %s: %w", len(b), s.Where(pos), err)
}

func errClosed(path string) error {
	return mqerr.New(mqerr.Unavailable, "%s is closed", path)
}
