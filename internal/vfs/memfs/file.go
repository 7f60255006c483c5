package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"github.com/perigee-mq/perigee/internal/vfs"
)

// sector is the unit in which a disk writes: it is old or new, never a mixture.
const sector = 512

// node is what a file holds, whatever its name. FS.mu guards it.
type node struct {
	live   []byte           // as read
	stable []byte           // as the last Sync left it
	dirty  map[int][][]byte // sectors in which live may differ from stable, with what they were meanwhile
}

func newNode() *node { return &node{dirty: map[int][][]byte{}} }

// pastMax is how many states of a sector are kept that were neither synced nor the last.
const pastMax = 4

// touch notes, before they change, that bytes are to change. The kernel may have written a sector at any
// time between two syncs, so each of its states may be what a power cut leaves.
func (n *node) touch(off, size int64) {
	for s := off / sector; s*sector < off+size; s++ {
		past, was := n.dirty[int(s)]
		if lo := s * sector; was && lo < int64(len(n.live)) {
			if len(past) == pastMax {
				past = past[1:]
			}
			past = append(past, bytes.Clone(n.live[lo:min(lo+sector, int64(len(n.live)))]))
		}
		n.dirty[int(s)] = past
	}
}

// truncate sets the length; mapped bytes stay where they are as long as it is not exceeded.
func (n *node) truncate(size int64) {
	was := int64(len(n.live))
	n.touch(min(was, size), max(was, size)-min(was, size))
	if size > was {
		n.live = slices.Grow(n.live, int(size-was))[:size]
		clear(n.live[was:])
	}
	n.live = n.live[:size]
}

func (n *node) write(b []byte, off int64) {
	if end := off + int64(len(b)); end > int64(len(n.live)) {
		n.truncate(end)
	}
	n.touch(off, int64(len(b)))
	copy(n.live[off:], b)
}

func (n *node) sync() {
	if was := len(n.stable); len(n.live) > was {
		n.stable = slices.Grow(n.stable, len(n.live)-was)[:len(n.live)]
		clear(n.stable[was:])
	}
	n.stable = n.stable[:len(n.live)]
	for s := range n.dirty {
		if lo := s * sector; lo < len(n.live) {
			hi := min(lo+sector, len(n.live))
			copy(n.stable[lo:hi], n.live[lo:hi])
		}
	}
	clear(n.dirty)
}

// file is an open node.
type file struct {
	fs       *FS
	node     *node
	name     string
	readOnly bool
	closed   bool // guarded by fs.mu
}

var _ vfs.File = (*file)(nil)

// do runs an operation under the lock. One that changes something and meets the power cut has its
// effect on what is not durable, and fails; sync says that its only effect is durability.
func (f *file) do(op string, effect, sync bool, run func() error) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	switch {
	case f.closed:
		return pathError(op, f.name, fs.ErrClosed)
	case f.fs.off:
		return pathError(op, f.name, ErrPowerLoss)
	case !effect:
		return run()
	case f.readOnly:
		return pathError(op, f.name, fs.ErrPermission)
	}
	cut := f.fs.actLocked()
	if cut != nil && sync {
		return pathError(op, f.name, cut)
	}
	if err := run(); err != nil {
		return err
	}
	if cut != nil {
		return pathError(op, f.name, cut)
	}
	return nil
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, off int64) (n int, err error) {
	err = f.do("read", false, false, func() error {
		if off < 0 {
			return pathError("read", f.name, fs.ErrInvalid)
		}
		if off < int64(len(f.node.live)) {
			n = copy(b, f.node.live[off:])
		}
		if n < len(b) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.do("write", true, false, func() error {
		if off < 0 {
			return pathError("write", f.name, fs.ErrInvalid)
		}
		room := f.fs.roomLocked(f.node, off+int64(len(b)))
		n = int(max(0, min(int64(len(b)), room-off)))
		f.node.write(b[:n], min(off, room))
		if n < len(b) {
			return pathError("write", f.name, syscall.ENOSPC)
		}
		return nil
	})
	if errors.Is(err, ErrPowerLoss) {
		n = 0
	}
	return n, err
}

// Allocate implements vfs.File.
func (f *file) Allocate(size int64) error {
	return f.do("allocate", true, false, func() error {
		if f.fs.roomLocked(f.node, size) < size {
			return pathError("allocate", f.name, syscall.ENOSPC)
		}
		f.node.truncate(max(size, int64(len(f.node.live))))
		return nil
	})
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	return f.do("sync", true, true, func() error {
		f.node.sync()
		return nil
	})
}

// Size implements vfs.File.
func (f *file) Size() (size int64, err error) {
	err = f.do("stat", false, false, func() error {
		size = int64(len(f.node.live))
		return nil
	})
	return size, err
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	return f.do("truncate", true, false, func() error {
		if size < 0 {
			return pathError("truncate", f.name, fs.ErrInvalid)
		}
		f.node.truncate(size)
		return nil
	})
}

// ZeroRange implements vfs.File.
func (f *file) ZeroRange(off, n int64) error {
	return f.do("zero range", true, false, func() error {
		if end := min(off+n, int64(len(f.node.live))); off < end {
			f.node.touch(off, end-off)
			clear(f.node.live[off:end])
		}
		return nil
	})
}

// Map implements vfs.File. The bytes follow later writes as long as the file does not grow.
func (f *file) Map(off int64, n int) (data []byte, unmap func() error, err error) {
	err = f.do("map", false, false, func() error {
		if off < 0 || n <= 0 || off+int64(n) > int64(len(f.node.live)) {
			return pathError("map", f.name, fmt.Errorf("%d bytes at %d of %d: %w", n, off, len(f.node.live), fs.ErrInvalid))
		}
		data = f.node.live[off : off+int64(n) : off+int64(n)]
		return nil
	})
	return data, func() error { return nil }, err
}

// Close implements vfs.File. It works without power too.
func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}
