//go:build unix && !linux

package vfs

func (f *osFile) Allocate(size int64) error { return f.allocateSlowly(size) }

// Sync is os.File.Sync, which is F_FULLFSYNC on darwin: a plain fsync does not reach the disk there.
func (f *osFile) Sync() error { return f.File.Sync() }

func (f *osFile) ZeroRange(off, n int64) error { return f.zeroSlowly(off, n) }
