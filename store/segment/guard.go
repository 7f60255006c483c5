package segment

import (
	"runtime/debug"
	"unsafe"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Guard runs fn, which reads bytes of the view. If the disk cannot read a page of the file, or the file was cut, the
// system answers the access with a fault that would end the process: here it is an error of kind Corrupt. All other
// panics go on. fn must do nothing that has to be undone.
func (v View) Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		fault, is := p.(interface{ Addr() uintptr })
		if !is || !v.m.holds(fault.Addr()) {
			panic(p)
		}
		err = mqerr.New(mqerr.Corrupt, "the file cannot be read at byte %d: the disk has lost it, or the file was cut", fault.Addr()-v.m.start())
	}()
	return fn()
}

func (m *mapping) start() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(m.data))) }

func (m *mapping) holds(at uintptr) bool {
	return at >= m.start() && at < m.start()+uintptr(len(m.data))
}
