package link

import "sync"

// packets holds packets that nobody needs any more, *[]byte of capacity PacketMax.
var packets = sync.Pool{New: func() any { b := make([]byte, 0, PacketMax); return &b }}

func newPacket() []byte { return (*packets.Get().(*[]byte))[:0] }

// Recycle takes a packet back that came from Transport.Send. The caller must not touch it any more.
func Recycle(packet []byte) {
	if cap(packet) >= PacketMax {
		packet = packet[:0]
		packets.Put(&packet)
	}
}
