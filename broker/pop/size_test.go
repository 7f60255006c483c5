package pop

import (
	"testing"
	"unsafe"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"node", unsafe.Sizeof(node{}), 28},
		{"chunk", unsafe.Sizeof(chunk{}), 232},
		{"page", unsafe.Sizeof(page{}), 64},
		{"branch", unsafe.Sizeof(branch{}), 272},
	} {
		if c.got != c.want {
			t.Errorf("a %s has %d bytes, not %d", c.name, c.got, c.want)
		}
		if per := c.got << segmentBits; c.name != "node" && per%8192 != 0 {
			t.Errorf("a segment of %ss has %d bytes: the allocator rounds that up", c.name, per)
		}
	}
}
