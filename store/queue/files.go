package queue

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
)

// files are the extent files of a directory and say which extents are in use. Extents are numbered
// through: file n holds perFile of them from n*perFile on, behind its head. Store.mu guards it.
type files struct {
	fs        vfs.FS
	dir       string
	readOnly  bool
	perFile   uint32
	list      []*file // by number, nil where there is none
	hint      int     // every file before it is there and full
	named     bool    // the directory changed since the last sync, or may have: a killed process syncs nothing
	retired   []run   // given up, oldest first
	durable   [2]uint64
	unwritten map[uint32][]patch // what extents hold and their files could not take, oldest first
	stuck     error              // why, of the newest failure; nil if the files have everything
	ahead     bool               // a file is kept ahead of the need
	closed    bool
}

// file is one extent file. A set bit of used is an extent that a queue has or that is retired. Without File
// it could not be made yet: what its extents hold is unwritten.
type file struct {
	vfs.File
	used  []uint64
	free  uint32
	dirty bool // written since the last sync
}

const fileSuffix = ".queue"

func fileName(n int) string { return fmt.Sprintf("%010d%s", n, fileSuffix) }

func fileNumber(name string) (int, bool) {
	digits, ok := strings.CutSuffix(name, fileSuffix)
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), ok && err == nil && len(digits) == 10
}

func (f *files) path(n int) string { return filepath.Join(f.dir, fileName(n)) }

// openFiles opens the files of a directory. Files that were not complete when the power went are left
// alone until their number is needed again: no checkpoint can name their extents.
func openFiles(o Options) (*files, error) {
	f := &files{fs: o.FS, dir: o.Dir, readOnly: o.ReadOnly}
	if !o.ReadOnly {
		if err := o.FS.MkdirAll(o.Dir); err != nil {
			return nil, fmt.Errorf("queue directory: %w", err)
		}
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("queue directory: %w", err)
	}
	for _, name := range names {
		n, ok := fileNumber(name)
		if !ok {
			continue
		}
		if err := f.open(n); err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.named = true
	}
	if f.perFile == 0 {
		f.perFile = uint32(o.FileBytes/ExtentBytes) - 1
	}
	return f, nil
}

func (f *files) open(n int) error {
	open := f.fs.Open
	if f.readOnly {
		open = f.fs.OpenRead
	}
	v, err := open(f.path(n))
	if err != nil {
		return fmt.Errorf("queue file: %w", err)
	}
	h, err := readFileHead(v, n)
	if mqerr.Is(err, mqerr.Corrupt) {
		return v.Close()
	}
	if err == nil && f.perFile != 0 && f.perFile != h.perFile {
		err = mqerr.New(mqerr.Corrupt, "%s holds %d extents, other files %d", f.path(n), h.perFile, f.perFile)
	}
	if err != nil {
		return errors.Join(err, v.Close())
	}
	f.perFile = h.perFile
	f.put(n, v)
	return nil
}

func (f *files) put(n int, v vfs.File) {
	for len(f.list) <= n {
		f.list = append(f.list, nil)
	}
	f.list[n] = newFile(v, f.perFile)
}

func newFile(v vfs.File, perFile uint32) *file {
	return &file{File: v, used: make([]uint64, (perFile+63)/64), free: perFile}
}

func (f *files) close() error {
	var errs []error
	for _, v := range f.list {
		if v != nil && v.File != nil {
			errs = append(errs, v.Close())
		}
	}
	f.list, f.unwritten, f.closed = nil, nil, true
	return errors.Join(errs...)
}

// where returns the file of an extent and the place of the extent in it.
func (f *files) where(x uint32) (n int, off int64) {
	return int(x / f.perFile), int64(1+x%f.perFile) * ExtentBytes
}

// take gives out a free extent, in a new file if need be.
func (f *files) take() (uint32, error) {
	if f.readOnly {
		return 0, mqerr.New(mqerr.Unsupported, "the queues are open for reading only")
	}
	for f.hint < len(f.list) && f.list[f.hint] != nil && f.list[f.hint].free == 0 {
		f.hint++
	}
	for n := f.hint; n < len(f.list); n++ {
		if v := f.list[n]; v != nil && v.free > 0 {
			return uint32(n)*f.perFile + v.first(f.perFile), nil
		}
	}
	n := f.hole()
	if uint64(n+1)*uint64(f.perFile) > math.MaxUint32 {
		return 0, mqerr.New(mqerr.DiskFull, "all %d queue files are in use", n)
	}
	f.add(n)
	return uint32(n)*f.perFile + f.list[n].first(f.perFile), nil
}

// hole is the number of the next file to be made.
func (f *files) hole() int {
	if n := slices.Index(f.list, nil); n >= 0 {
		return n
	}
	return len(f.list)
}

// first marks the first free extent of a file that has one and returns its place there.
func (v *file) first(perFile uint32) uint32 {
	for w, word := range v.used {
		if i := uint32(w*64 + bits.TrailingZeros64(^word)); word != math.MaxUint64 && i < perFile {
			v.mark(i)
			return i
		}
	}
	panic("queue: no free extent in a file that has one")
}

func (v *file) mark(i uint32)     { v.used[i/64] |= 1 << (i % 64); v.free-- }
func (v *file) unmark(i uint32)   { v.used[i/64] &^= 1 << (i % 64); v.free++ }
func (v *file) has(i uint32) bool { return v.used[i/64]&(1<<(i%64)) != 0 }

// add makes file n, or notes that it is to be made.
func (f *files) add(n int) {
	v, err := f.create(n)
	if err != nil {
		f.stuck = err
	}
	f.put(n, v)
	f.list[n].dirty = true
}

// create makes file n at its full length: later writes need no further space. Nothing is left of one that
// cannot be made.
func (f *files) create(n int) (vfs.File, error) {
	v, err := f.fs.Create(f.path(n))
	if err != nil {
		return nil, fmt.Errorf("new queue file: %w", err)
	}
	f.named = true
	err = v.Allocate(int64(f.perFile+1) * ExtentBytes)
	if err == nil {
		h := fileHead{number: n, perFile: f.perFile}
		_, err = v.WriteAt(h.encode(), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("new queue file: %w", errors.Join(err, v.Close(), f.fs.Remove(f.path(n))))
	}
	return v, nil
}

// read fills data with the part of an extent that want covers, and checks it.
func (f *files) read(x uint32, data []byte, want *extentHead) error {
	n, at := f.where(x)
	size := extentHeader + want.count*EntryBytes
	if err := f.readAll(x, data[:size]); err != nil {
		return fmt.Errorf("%s: read extent at %d: %w", f.path(n), at, err)
	}
	if err := want.check(data[:size]); err != nil {
		return mqerr.New(mqerr.KindOf(err), "%s: at byte %d: %w", f.path(n), at, err)
	}
	return nil
}

func (f *files) count() (used, retired, open int) {
	for _, r := range f.retired {
		retired += int(r.n)
	}
	for _, v := range f.list {
		if v != nil {
			open++
			used += int(f.perFile - v.free)
		}
	}
	return used - retired, retired, open
}
