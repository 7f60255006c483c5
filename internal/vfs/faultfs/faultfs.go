// Package faultfs wraps a file system and makes chosen operations fail.
//
// A test counts the operations of a good run (Count), and then runs again once for every n with
// Set(Fault{Op, Nth: n}), looking at what is left. A loop that ends when Hit is false needs no counting.
package faultfs

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/perigee-mq/perigee/internal/vfs"
)

// ErrInjected is the default error of a fault.
var ErrInjected = errors.New("faultfs: injected failure")

// Op is a kind of operation.
type Op uint8

// Kinds of operations.
const (
	Any Op = iota // in a Fault: every kind below
	OpCreate
	OpOpen
	OpRemove
	OpRename
	OpMkdir
	OpList
	OpStat // FS.Stat and File.Size
	OpSyncDir
	OpLock
	OpUsage
	OpRead
	OpWrite
	OpAllocate
	OpSync
	OpTruncate
	OpZeroRange
	OpMap
	numOps
)

var opNames = [numOps]string{
	"any", "create", "open", "remove", "rename", "mkdir", "list", "stat", "sync dir", "lock", "usage",
	"read", "write", "allocate", "sync", "truncate", "zero range", "map",
}

// String returns the name of the operation.
func (o Op) String() string { return opNames[o] }

// Fault says what fails.
type Fault struct {
	Op     Op
	Nth    int    // the nth such operation from Set on, counted from 1
	Path   string // only operations on names that contain this; empty: all
	Short  bool   // a write that fails has written the first half
	Always bool   // all later ones fail too
	Err    error  // default ErrInjected
}

// FS is a file system with faults. It is safe for concurrent use.
type FS struct {
	vfs.FS

	mu    sync.Mutex
	count map[done]int
	bad   []sector
	fault *Fault
	left  int // matching operations until the fault
	hits  int
}

// done is what is counted: operations of one kind on one name.
type done struct {
	op   Op
	name string
}

// Wrap returns fs with no fault set.
func Wrap(fs vfs.FS) *FS { return &FS{FS: fs, count: map[done]int{}} }

// Set replaces the fault and forgets that the former one was hit.
func (f *FS) Set(fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.Err == nil {
		fault.Err = ErrInjected
	}
	f.fault, f.left, f.hits = &fault, fault.Nth, 0
}

// Clear takes the fault away.
func (f *FS) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = nil
}

// sector is a part of a file that cannot be read.
type sector struct {
	path     string
	from, to int64
}

// Bad makes reads that touch bytes [from, to) of files whose names contain path fail with EIO, as where a disk has lost
// a sector. Bytes that are mapped are read as before.
func (f *FS) Bad(path string, from, to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bad = append(f.bad, sector{path, from, to})
}

func (f *FS) lost(name string, off int64, n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.bad, func(s sector) bool {
		return strings.Contains(name, s.path) && off < s.to && off+int64(n) > s.from
	})
}

// Hit tells whether the fault struck since Set.
func (f *FS) Hit() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits > 0
}

// Count is the number of operations of a kind so far on names that contain path, those that failed
// included.
func (f *FS) Count(op Op, path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for d, c := range f.count {
		if (op == Any || op == d.op) && strings.Contains(d.name, path) {
			n += c
		}
	}
	return n
}

// act counts an operation and returns the error it fails with, nil if it does not. short asks for half
// a write.
func (f *FS) act(op Op, name string) (short bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[done{op, name}]++
	if f.fault == nil || (f.fault.Op != Any && f.fault.Op != op) || !strings.Contains(name, f.fault.Path) {
		return false, nil
	}
	f.left--
	if f.left == 0 || (f.left < 0 && f.fault.Always) {
		f.hits++
		return f.fault.Short, f.fault.Err
	}
	return false, nil
}

func (f *FS) try(op Op, name string) error {
	_, err := f.act(op, name)
	return err
}

// Create implements vfs.FS.
func (f *FS) Create(name string) (vfs.File, error) { return f.open(OpCreate, name, f.FS.Create) }

// Open implements vfs.FS.
func (f *FS) Open(name string) (vfs.File, error) { return f.open(OpOpen, name, f.FS.Open) }

// OpenRead implements vfs.FS.
func (f *FS) OpenRead(name string) (vfs.File, error) { return f.open(OpOpen, name, f.FS.OpenRead) }

func (f *FS) open(op Op, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := f.try(op, name); err != nil {
		return nil, err
	}
	in, err := open(name)
	if err != nil {
		return nil, err
	}
	return &file{File: in, fs: f, name: name}, nil
}

// Remove implements vfs.FS.
func (f *FS) Remove(name string) error {
	if err := f.try(OpRemove, name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

// Rename implements vfs.FS.
func (f *FS) Rename(from, to string) error {
	if err := f.try(OpRename, to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

// MkdirAll implements vfs.FS.
func (f *FS) MkdirAll(dir string) error {
	if err := f.try(OpMkdir, dir); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir)
}

// List implements vfs.FS.
func (f *FS) List(dir string) ([]string, error) {
	if err := f.try(OpList, dir); err != nil {
		return nil, err
	}
	return f.FS.List(dir)
}

// Stat implements vfs.FS.
func (f *FS) Stat(name string) (vfs.Info, error) {
	if err := f.try(OpStat, name); err != nil {
		return vfs.Info{}, err
	}
	return f.FS.Stat(name)
}

// SyncDir implements vfs.FS.
func (f *FS) SyncDir(dir string) error {
	if err := f.try(OpSyncDir, dir); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

// Lock implements vfs.FS.
func (f *FS) Lock(name string) (io.Closer, error) {
	if err := f.try(OpLock, name); err != nil {
		return nil, err
	}
	return f.FS.Lock(name)
}

// Usage implements vfs.FS.
func (f *FS) Usage(dir string) (vfs.Usage, error) {
	if err := f.try(OpUsage, dir); err != nil {
		return vfs.Usage{}, err
	}
	return f.FS.Usage(dir)
}
