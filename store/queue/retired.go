package queue

import (
	"errors"
	"fmt"
)

// run is a number of extents given up at a time when encodes checkpoints had been encoded.
type run struct {
	first, n uint32
	encodes  uint64
}

// giveBack frees an extent that no checkpoint can name.
func (f *files) giveBack(x uint32) {
	n := int(x / f.perFile)
	f.list[n].unmark(x % f.perFile)
	delete(f.unwritten, x)
	f.hint = min(f.hint, n)
}

// retire gives an extent up. It stays marked until saved says that no checkpoint names it.
func (f *files) retire(x uint32, encodes uint64) {
	if n := len(f.retired); n > 0 {
		if r := &f.retired[n-1]; r.encodes == encodes && r.first+r.n == x {
			r.n++
			return
		}
	}
	f.retired = append(f.retired, run{first: x, n: 1, encodes: encodes})
}

// saved says that the checkpoint of the given encode is durable, and that only it and the one before it
// are kept. What neither names is free; files that hold nothing else go.
func (f *files) saved(encode uint64) error {
	if encode <= f.durable[1] {
		return nil
	}
	f.durable = [2]uint64{f.durable[1], encode}
	n := 0
	for n < len(f.retired) && f.retired[n].encodes < f.durable[0] {
		r := f.retired[n]
		for x := r.first; x-r.first < r.n; x++ {
			f.giveBack(x)
		}
		n++
	}
	if n == 0 {
		return nil
	}
	f.retired = append(f.retired[:0], f.retired[n:]...)
	return f.removeEmpty()
}

// removeEmpty removes the files without a used extent, except the first of all, and one that is ahead.
func (f *files) removeEmpty() error {
	free := f.free()
	for n, v := range f.list {
		if v == nil || n == 0 || v.free < f.perFile || (f.ahead && free-int(v.free) < f.reserve()) {
			continue
		}
		free -= int(v.free)
		f.list[n] = nil
		if v.File == nil {
			continue
		}
		f.named = true
		if err := errors.Join(v.Close(), f.fs.Remove(f.path(n))); err != nil {
			return fmt.Errorf("remove queue file: %w", err)
		}
	}
	return nil
}
