package segment

import (
	"errors"
	"sync/atomic"

	"github.com/perigee-mq/perigee/store/record"
)

// counted runs last once, when the owner and everybody who got it have put it back.
type counted struct {
	n    atomic.Int64
	last func()
}

func (c *counted) init(last func()) {
	c.last = last
	c.n.Store(1)
}

// get takes a reference, unless the last one is gone.
func (c *counted) get() bool {
	for {
		n := c.n.Load()
		if n == 0 {
			return false
		}
		if c.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *counted) put() {
	switch n := c.n.Add(-1); {
	case n == 0:
		c.last()
	case n < 0:
		panic("segment: a reference was given back twice")
	}
}

// View is a reference to the mapped bytes of a segment. The zero View is none.
type View struct {
	m    *mapping
	base record.Pos
}

// Bytes returns n bytes from a position, valid until Release; nil if they are outside.
func (v View) Bytes(pos record.Pos, n int) []byte {
	off := int64(pos - v.base)
	if off < 0 || n < 0 || off+int64(n) > int64(len(v.m.data)) {
		return nil
	}
	return v.m.data[off : off+int64(n) : off+int64(n)]
}

// Release gives the reference back. It must be called once.
func (v View) Release() {
	if v.m != nil {
		v.m.in.put()
	}
}

// Map maps the file for reading, so that View works.
func (s *Segment) Map() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errClosed(s.path)
	case s.view.Load() != nil:
		return nil
	}
	data, unmap, err := s.file.Map(0, int(s.size))
	if err != nil {
		return err
	}
	m := &mapping{data: data, unmap: unmap}
	s.inUse.get()
	m.in.init(func() {
		if err := m.unmap(); err != nil {
			s.mu.Lock()
			s.err = errors.Join(s.err, err)
			s.mu.Unlock()
		}
		s.inUse.put()
	})
	s.view.Store(m)
	return nil
}

// Mapped tells whether View would work.
func (s *Segment) Mapped() bool { return s.view.Load() != nil }

// View takes a reference to the mapped bytes; ok is false if the file is not mapped: use ReadAt.
func (s *Segment) View() (v View, ok bool) {
	m := s.view.Load()
	if m == nil || !m.in.get() {
		return View{}, false
	}
	return View{m: m, base: s.base}, true
}

// Unmap ends the mapping when the last View is released.
func (s *Segment) Unmap() {
	if m := s.view.Swap(nil); m != nil {
		m.in.put()
	}
}

// Close refuses new readers and returns. The file is closed when the last reader has left. It syncs
// nothing; no write or sync may be under way or follow.
func (s *Segment) Close() { s.CloseThen(nil) }

// CloseThen is Close, and calls then when the last reader has left and the file is closed: at once, or in the
// goroutine of that reader. It is not called if the segment was closed before.
func (s *Segment) CloseThen(then func()) {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if first {
		s.then = then
	}
	s.mu.Unlock()
	if first {
		s.Unmap()
		s.inUse.put()
	}
}

func (s *Segment) closeFile() {
	err := s.file.Close()
	s.mu.Lock()
	s.err = errors.Join(s.err, err)
	then := s.then
	s.mu.Unlock()
	close(s.gone)
	if then != nil {
		then()
	}
}

// Hold keeps the file open for reading until Release, also if the segment is closed meanwhile; false if it is
// closed already.
func (s *Segment) Hold() bool { return s.inUse.get() }

// Release ends a Hold.
func (s *Segment) Release() { s.inUse.put() }

// Remove closes the segment, waits for the last reader and deletes the file. The caller syncs the
// directory.
func (s *Segment) Remove() error {
	s.Close()
	<-s.gone
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.err, s.fs.Remove(s.path))
}
