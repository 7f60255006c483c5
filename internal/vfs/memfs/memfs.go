// Package memfs is a file system in memory that can lose power.
//
// A test runs the code on an FS, cuts the power (CutPower, or simply stops), and goes on with what
// Crash returns: the bytes that Sync covered, each other sector (of 512 bytes, or of 4 KiB) by chance, as
// it was last or at some moment since it was synced, and names that
// SyncDir covered, each other creation, renaming and removal by chance. A process that is killed loses
// nothing: Restart only drops its locks, and what was not synced stays at risk.
package memfs

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/perigee-mq/perigee/internal/vfs"
)

// ErrPowerLoss is what every operation returns after the power was cut.
var ErrPowerLoss = errors.New("memfs: the power is off")

// FS is a file system in memory. The zero value is not ready: use New.
type FS struct {
	mu      sync.Mutex
	dirs    map[string]bool
	live    map[string]*node // by clean path
	durable map[string]*node // as after the last SyncDir of each directory
	pending []change         // changes of names that no SyncDir covered, oldest first
	locks   map[string]bool
	usage   vfs.Usage
	budget  int64 // bytes of all files, at most; 0: no bound
	ops     int   // operations that changed something or made something durable
	cutAt   int   // 0: never
	off     bool
}

// change is one creation (from empty), removal (to empty) or renaming.
type change struct {
	from, to string
	node     *node
}

// New returns an empty file system with plenty of space.
func New() *FS {
	return &FS{
		dirs: map[string]bool{".": true, "/": true}, live: map[string]*node{}, durable: map[string]*node{},
		locks: map[string]bool{}, usage: vfs.Usage{Total: 1 << 40, Free: 1 << 40},
	}
}

// SetUsage sets what Usage returns.
func (m *FS) SetUsage(u vfs.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage = u
}

// SetBudget bounds the bytes of all files together: what would need more fails with ENOSPC, a write after the
// part that fits. Usage follows it. 0 takes the bound away.
func (m *FS) SetBudget(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.budget = bytes
}

// Used is the bytes of all files together.
func (m *FS) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usedLocked()
}

func (m *FS) usedLocked() (n int64) {
	for _, node := range m.live {
		n += int64(len(node.live))
	}
	return n
}

// roomLocked is up to which length, of want, a file can grow.
func (m *FS) roomLocked(n *node, want int64) int64 {
	has := int64(len(n.live))
	if m.budget == 0 || want <= has {
		return want
	}
	return min(want, has+max(0, m.budget-m.usedLocked()))
}

// Ops counts the operations so far that changed something or made something durable.
func (m *FS) Ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ops
}

// CutPower cuts the power at the nth operation from now that changes something or makes something
// durable, counted from 1: that one fails (a write may still have reached the disk, a sync covers
// nothing) and so does every operation after it. 0 takes an order back.
func (m *FS) CutPower(nth int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cutAt = 0
	if nth > 0 {
		m.cutAt = m.ops + nth
	}
}

// Restart ends the process that uses the file system, without power loss: locks are free again and a
// power cut that was ordered or happened is over.
func (m *FS) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.locks)
	m.off, m.cutAt = false, 0
}

// actLocked counts an operation and tells whether it may take its full effect: with an error, only as far
// as nothing becomes durable.
func (m *FS) actLocked() error {
	if m.off {
		return ErrPowerLoss
	}
	m.ops++
	if m.ops == m.cutAt {
		m.off = true
		return ErrPowerLoss
	}
	return nil
}

// Create implements vfs.FS.
func (m *FS) Create(name string) (vfs.File, error) {
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.actLocked(); err != nil {
		return nil, pathError("create", name, err)
	}
	if !m.dirs[filepath.Dir(name)] {
		return nil, pathError("create", name, fs.ErrNotExist)
	}
	if n := m.live[name]; n != nil {
		n.truncate(0)
		return &file{fs: m, node: n, name: name}, nil
	}
	n := newNode()
	m.live[name] = n
	m.pending = append(m.pending, change{to: name, node: n})
	return &file{fs: m, node: n, name: name}, nil
}

// Open implements vfs.FS.
func (m *FS) Open(name string) (vfs.File, error) { return m.open(name, false) }

// OpenRead implements vfs.FS.
func (m *FS) OpenRead(name string) (vfs.File, error) { return m.open(name, true) }

func (m *FS) open(name string, readOnly bool) (vfs.File, error) {
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return nil, pathError("open", name, ErrPowerLoss)
	}
	n := m.live[name]
	if n == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	return &file{fs: m, node: n, name: name, readOnly: readOnly}, nil
}

// Remove implements vfs.FS.
func (m *FS) Remove(name string) error {
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.actLocked(); err != nil {
		return pathError("remove", name, err)
	}
	if m.dirs[name] {
		if len(m.listLocked(name)) > 0 {
			return pathError("remove", name, errors.New("directory not empty"))
		}
		delete(m.dirs, name)
		return nil
	}
	n := m.live[name]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	delete(m.live, name)
	m.pending = append(m.pending, change{from: name, node: n})
	return nil
}

// Rename implements vfs.FS.
func (m *FS) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.actLocked(); err != nil {
		return pathError("rename", from, err)
	}
	n := m.live[from]
	if n == nil || !m.dirs[filepath.Dir(to)] {
		return pathError("rename", from, fs.ErrNotExist)
	}
	delete(m.live, from)
	m.live[to] = n
	m.pending = append(m.pending, change{from: from, to: to, node: n})
	return nil
}

// MkdirAll implements vfs.FS.
func (m *FS) MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirs[dir] && !m.off {
		return nil
	}
	if err := m.actLocked(); err != nil {
		return pathError("mkdir", dir, err)
	}
	for ; !m.dirs[dir]; dir = filepath.Dir(dir) {
		if m.live[dir] != nil {
			return pathError("mkdir", dir, fs.ErrExist)
		}
		m.dirs[dir] = true
	}
	return nil
}

// List implements vfs.FS.
func (m *FS) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return nil, pathError("list", dir, ErrPowerLoss)
	}
	if !m.dirs[dir] {
		return nil, pathError("list", dir, fs.ErrNotExist)
	}
	return m.listLocked(dir), nil
}

func (m *FS) listLocked(dir string) []string {
	var names []string
	for name := range m.live {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	for name := range m.dirs {
		if filepath.Dir(name) == dir && name != dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names
}

// Stat implements vfs.FS.
func (m *FS) Stat(name string) (vfs.Info, error) {
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch n := m.live[name]; {
	case m.off:
		return vfs.Info{}, pathError("stat", name, ErrPowerLoss)
	case m.dirs[name]:
		return vfs.Info{Dir: true}, nil
	case n != nil:
		return vfs.Info{Size: int64(len(n.live))}, nil
	}
	return vfs.Info{}, pathError("stat", name, fs.ErrNotExist)
}

// SyncDir implements vfs.FS.
func (m *FS) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.actLocked(); err != nil {
		return pathError("sync", dir, err)
	}
	if !m.dirs[dir] {
		return pathError("sync", dir, fs.ErrNotExist)
	}
	m.pending = slices.DeleteFunc(m.pending, func(c change) bool {
		covered := c.from == "" || filepath.Dir(c.from) == dir
		covered = covered && (c.to == "" || filepath.Dir(c.to) == dir)
		if covered {
			c.apply(m.durable)
		}
		return covered
	})
	return nil
}

func (c change) apply(names map[string]*node) {
	if c.from != "" {
		delete(names, c.from)
	}
	if c.to != "" {
		names[c.to] = c.node
	}
}

// Lock implements vfs.FS.
func (m *FS) Lock(name string) (io.Closer, error) {
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.off {
		return nil, pathError("lock", name, ErrPowerLoss)
	}
	if !m.dirs[filepath.Dir(name)] {
		return nil, pathError("lock", name, fs.ErrNotExist)
	}
	if m.locks[name] {
		return nil, vfs.LockedError(name, "another user of this memory")
	}
	m.locks[name] = true
	return &lock{fs: m, name: name}, nil
}

type lock struct {
	fs   *FS
	name string
}

func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}

// Usage implements vfs.FS.
func (m *FS) Usage(string) (vfs.Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.budget > 0 {
		return vfs.Usage{Total: uint64(m.budget), Free: uint64(max(0, m.budget-m.usedLocked()))}, nil
	}
	return m.usage, nil
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}
