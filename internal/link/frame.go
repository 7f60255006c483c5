package link

import (
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// A packet is a sequence of whole frames. A frame:
//
//	0  1  kind
//	1  1  flags  of requests and replies, else 0
//	2  2  size   bytes of the payload
//	4  4  id     of the request; the class of a credit; else 0
//	8     payload
//
// Numbers are little-endian. See docs/format/link.md.
const (
	headSize   = 8
	payloadMax = FrameMax - headSize
)

type kind uint8

const (
	kindWindow  kind = 1 // first frame of each side. Payload: Classes windows of 4 bytes
	kindRequest kind = 2 // client to server
	kindReply   kind = 3 // server to client
	kindEvent   kind = 4 // server to client
	kindCredit  kind = 5 // payload: 4 bytes, how much is given back
	kindCancel  kind = 6 // client to server: nobody waits for the reply any more
	kindPing    kind = 7
	kindPong    kind = 8
	kindGoaway  kind = 9 // from the server: send no more requests; from the client: there will be none
)

// Flags of requests and replies.
const (
	flagFirst   = 1 << 0 // the payload begins with a request or reply head
	flagLast    = 1 << 1 // the message is complete
	flagFailed  = 1 << 2 // reply: the message is an error
	flagRefused = 1 << 3 // reply: empty; the request was not looked at (draining or cancelled)
	flagsKnown  = flagFirst | flagLast | flagFailed | flagRefused
)

// Heads within the payload of a first frame.
//
//	request: 0 1 op · 1 1 class · 2 4 time left in ms, 0 for no deadline · 6 4 size of the message
//	reply:   0 4 size of the message
const (
	requestHeadSize = 10
	replyHeadSize   = 4
	windowSize      = 4 * Classes
	creditSize      = 4
)

type head struct {
	kind  kind
	flags uint8
	size  int
	id    uint32
}

func appendHead(dst []byte, h head) []byte {
	dst = append(dst, byte(h.kind), h.flags)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.size))
	return binary.LittleEndian.AppendUint32(dst, h.id)
}

// nextFrame splits the first frame off a packet.
func nextFrame(packet []byte) (h head, payload, rest []byte, err error) {
	if len(packet) < headSize {
		return h, nil, nil, broken("a packet ends within the head of a frame")
	}
	h = head{
		kind: kind(packet[0]), flags: packet[1],
		size: int(binary.LittleEndian.Uint16(packet[2:])), id: binary.LittleEndian.Uint32(packet[4:]),
	}
	packet = packet[headSize:]
	switch {
	case h.size > payloadMax:
		return h, nil, nil, broken("a frame with %d bytes, at most %d are allowed", h.size, payloadMax)
	case h.size > len(packet):
		return h, nil, nil, broken("a frame of %d bytes in a packet that has only %d left", h.size, len(packet))
	case h.kind < kindWindow || h.kind > kindGoaway:
		return h, nil, nil, broken("a frame of the unknown kind %d: a newer release is needed here", h.kind)
	}
	if err := h.plausible(); err != nil {
		return h, nil, nil, err
	}
	return h, packet[:h.size:h.size], packet[h.size:], nil
}

// plausible checks flags and sizes that do not depend on the state of the link.
func (h head) plausible() error {
	want, flags := 0, uint8(0)
	switch h.kind {
	case kindRequest:
		want, flags = h.size, flagFirst|flagLast
		if h.flags&flagFirst != 0 && h.size < requestHeadSize {
			want = requestHeadSize
		}
	case kindReply:
		want, flags = h.size, flagsKnown
		if h.flags&flagFirst != 0 && h.size < replyHeadSize {
			want = replyHeadSize
		}
	case kindEvent:
		want = h.size
	case kindWindow:
		want = windowSize
	case kindCredit:
		want = creditSize
	}
	if h.flags&^flags != 0 {
		return broken("a frame of kind %d with flags %#x", h.kind, h.flags)
	}
	if h.size != want {
		return broken("a frame of kind %d with %d bytes, not %d", h.kind, h.size, want)
	}
	return nil
}

// broken is an error for a peer that does not keep to the protocol.
func broken(format string, args ...any) error {
	return mqerr.New(mqerr.Invalid, "link: the peer sent "+format, args...)
}

// le32 reads the number at offset at.
func le32(b []byte, at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
