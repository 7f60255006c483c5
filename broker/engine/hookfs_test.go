package engine

import (
	"sync/atomic"

	"github.com/perigee-mq/perigee/internal/vfs"
)

// hookFS asks a function before it creates, renames, syncs or reads a file: the function may wait, or
// return an error instead.
type hookFS struct {
	vfs.FS
	hook atomic.Pointer[func(op, name string) error]
}

func (h *hookFS) set(f func(op, name string) error) { h.hook.Store(&f) }

func (h *hookFS) ask(op, name string) error {
	if f := h.hook.Load(); f != nil {
		return (*f)(op, name)
	}
	return nil
}

func (h *hookFS) Rename(from, to string) error {
	if err := h.ask("rename", to); err != nil {
		return err
	}
	return h.FS.Rename(from, to)
}

func (h *hookFS) Create(name string) (vfs.File, error) {
	if err := h.ask("create", name); err != nil {
		return nil, err
	}
	return h.wrap(name)(h.FS.Create(name))
}

func (h *hookFS) Open(name string) (vfs.File, error) { return h.wrap(name)(h.FS.Open(name)) }

func (h *hookFS) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return &hookFile{f, h, name}, nil
	}
}

type hookFile struct {
	vfs.File
	fs   *hookFS
	name string
}

func (f *hookFile) Sync() error {
	if err := f.fs.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.ask("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}
