// Package vfs is the file system as the store sees it: a few operations with their durability spelled
// out.
//
// OS is the real one. Package memfs keeps files in memory and can lose power, package faultfs makes
// the nth operation of a kind fail. Paths are those of path/filepath. Errors about missing or existing
// files satisfy errors.Is with fs.ErrNotExist and fs.ErrExist of io/fs.
//
// Two things become durable separately: the bytes of a file by File.Sync, and its name by FS.SyncDir of
// the directory. A file that was created, renamed or removed without SyncDir may be found under its
// old name, its new one or not at all after a power cut; a rename itself is atomic.
package vfs

import "io"

// FS is a file system. All methods may be called concurrently.
type FS interface {
	// Create makes an empty file for reading and writing, or empties the one that is there.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading only.
	OpenRead(name string) (File, error)
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// Rename gives a file another name, replacing a file of that name atomically.
	Rename(from, to string) error
	// MkdirAll makes a directory and its missing parents; their names are durable when it returns.
	MkdirAll(dir string) error
	// List returns the names of what is in a directory, sorted.
	List(dir string) ([]string, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock named by a file, without waiting; Close releases it. It ends with the
	// process at the latest.
	Lock(name string) (io.Closer, error)
	// Usage tells how full the file system that holds dir is.
	Usage(dir string) (Usage, error)
}

// File is an open file. All methods but Close may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Allocate gives the file a length of size bytes, with real blocks that read as zero: a later write
	// inside cannot fail for lack of space. It is for new files; existing bytes stay.
	Allocate(size int64) error
	// Sync makes all bytes written before durable, and the length. After a failure it is unknown what is
	// on disk and a second Sync may wrongly succeed: give the file up.
	Sync() error
	// Size is the length in bytes.
	Size() (int64, error)
	// Truncate sets the length. Never shorten a file that is mapped.
	Truncate(size int64) error
	// ZeroRange makes n bytes from off read as zero and keeps their blocks. It does not change the length
	// and is not durable until Sync.
	ZeroRange(off, n int64) error
	// Map gives n bytes from off (a multiple of the page size) for reading. They follow later writes and
	// are valid until unmap, which is to be called once; closing the file does not end the mapping.
	Map(off int64, n int) (data []byte, unmap func() error, err error)
	// Close releases the file. It syncs nothing.
	Close() error
}

// Info describes a file.
type Info struct {
	Size int64 // bytes
	Dir  bool
}

// Usage is the space of a file system in bytes.
type Usage struct {
	Total uint64
	Free  uint64 // available to this process
}

// UsedShare is the used part of the space, 0..1.
func (u Usage) UsedShare() float64 {
	if u.Total == 0 {
		return 0
	}
	return 1 - float64(min(u.Free, u.Total))/float64(u.Total)
}
