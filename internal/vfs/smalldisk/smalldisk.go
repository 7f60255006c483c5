// Package smalldisk gives tests a real file system of a few MiB that can be filled.
package smalldisk

import (
	"os"
	"path/filepath"
	"testing"
)

// Disk is a mounted file system of its own.
type Disk struct {
	Dir string
	t   testing.TB
}

// Mount mounts one until the end of the test, which is skipped with a notice where that is not allowed.
func Mount(t testing.TB, bytes int64) *Disk {
	t.Helper()
	dir, err := os.MkdirTemp("", "smalldisk-")
	if err != nil {
		t.Fatal(err)
	}
	if err := mount(dir, bytes); err != nil {
		_ = os.Remove(dir)
		t.Skipf("NOTICE: no small disk can be mounted here (%v): what happens on a full one is not tested", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
		_ = os.Remove(dir)
	})
	return &Disk{Dir: dir, t: t}
}

// Fill takes all space but left bytes.
func (d *Disk) Fill(left int64) {
	d.t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		d.t.Fatal(err)
	}
	size := info.Size()
	for {
		free := d.Free()
		if free <= left {
			return
		}
		grow := (free - left + 4095) / 4096 * 4096
		if err := allocate(f, size, grow); err != nil {
			d.t.Logf("fill %d bytes: %v", grow, err) // somebody else was faster
			continue
		}
		size += grow
	}
}

// Empty gives the space back that Fill took.
func (d *Disk) Empty() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Free is the space that is left, in bytes.
func (d *Disk) Free() int64 {
	d.t.Helper()
	n, err := free(d.Dir)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}
