// Package receipt makes and reads receipt handles: the text that a consumer gets with a message and
// gives back to end or change the lease of that message.
//
// A handle is opaque to clients, self-contained and authenticated, so any proxy can serve any handle
// and no proxy remembers one. It names one delivery: shard, queue, offset and the lease, which is the
// log position of the record that leased the message. Whether the lease is still the message's latest
// is the broker's to say.
package receipt

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Layout of a handle before it is written as base64url without padding; numbers are little-endian:
//
//	0   1  version  1
//	1   1  key      id of the key of the MAC, 1 to 255
//	2   2  flags    0; others are refused
//	4   4  topic    id
//	8   4  group    id
//	12  4  shard    id of the broker group
//	16  4  queue
//	20  8  offset
//	28  8  lease    position of the lease record
//	36  8  epoch    of the shard when the lease was made
//	44 16  MAC      SipHash-2-4-128 of bytes 0 to 43
//
// 60 bytes are 80 characters with no spare bits, so a handle has exactly one spelling.
const (
	version = 1
	macAt   = rawSize - macSize
	rawSize = 60

	// Size is the length of a handle in characters.
	Size = rawSize / 3 * 4
)

// KeyID names a key. 0 is no key.
type KeyID uint8

// Key is a secret of the cluster under which handles are authenticated.
type Key struct{ k0, k1 uint64 }

// NewKey makes a key of its 16 bytes.
func NewKey(b [16]byte) Key {
	return Key{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:])}
}

// Keys finds a key by its id.
type Keys interface {
	// HandleKey returns the key, false if there is none of that id.
	HandleKey(id KeyID) (Key, bool)
}

// Handle names one delivery of one message to one group.
type Handle struct {
	Topic brokerapi.TopicID
	Group brokerapi.GroupID
	Shard brokerapi.ShardID
	brokerapi.Handle
}

// Append appends the text of h, authenticated with key. It allocates only to grow dst.
func (h Handle) Append(dst []byte, id KeyID, key Key) []byte {
	var raw [rawSize]byte
	raw[0], raw[1] = version, byte(id)
	binary.LittleEndian.PutUint32(raw[4:], uint32(h.Topic))
	binary.LittleEndian.PutUint32(raw[8:], uint32(h.Group))
	binary.LittleEndian.PutUint32(raw[12:], uint32(h.Shard))
	binary.LittleEndian.PutUint32(raw[16:], uint32(h.Queue))
	binary.LittleEndian.PutUint64(raw[20:], uint64(h.Offset))
	binary.LittleEndian.PutUint64(raw[28:], uint64(h.Lease))
	binary.LittleEndian.PutUint64(raw[36:], uint64(h.Epoch))
	sign(raw[:], key)
	return base64.RawURLEncoding.AppendEncode(dst, raw[:])
}

// errInvalid is one value, so that bad handles cost nothing and tell nothing about what is wrong.
var errInvalid = mqerr.New(mqerr.HandleInvalid, "the receipt handle is not one that this cluster gave out")

// Decode reads the text of a handle. Any damage, another spelling included, is HandleInvalid.
func Decode(text []byte, keys Keys) (Handle, error) {
	var raw [rawSize]byte
	if len(text) != Size || !decode64(raw[:], text) {
		return Handle{}, errInvalid
	}
	key, ok := keys.HandleKey(KeyID(raw[1]))
	if !ok {
		return Handle{}, errInvalid
	}
	if !signed(raw[:], key) || raw[0] != version || raw[2]|raw[3] != 0 {
		return Handle{}, errInvalid
	}
	return Handle{
		Topic: brokerapi.TopicID(binary.LittleEndian.Uint32(raw[4:])),
		Group: brokerapi.GroupID(binary.LittleEndian.Uint32(raw[8:])),
		Shard: brokerapi.ShardID(binary.LittleEndian.Uint32(raw[12:])),
		Handle: brokerapi.Handle{
			Queue:  brokerapi.QueueID(binary.LittleEndian.Uint32(raw[16:])),
			Offset: brokerapi.QueueOffset(binary.LittleEndian.Uint64(raw[20:])),
			Lease:  brokerapi.LogPos(binary.LittleEndian.Uint64(raw[28:])),
			Epoch:  brokerapi.Epoch(binary.LittleEndian.Uint64(raw[36:])),
		},
	}, nil
}

// macSize is the length of what authenticates a handle: its last bytes, SipHash-2-4 with 128 bits of all before.
const macSize = 16

// sign fills in the last bytes of a handle.
func sign(raw []byte, key Key) {
	at := len(raw) - macSize
	lo, hi := siphash.Hash128(key.k0, key.k1, raw[:at])
	binary.LittleEndian.PutUint64(raw[at:], lo)
	binary.LittleEndian.PutUint64(raw[at+8:], hi)
}

// signed reports whether the last bytes of a handle are what sign makes. The difference is gathered before it
// is looked at, so that the time tells nothing.
func signed(raw []byte, key Key) bool {
	at := len(raw) - macSize
	lo, hi := siphash.Hash128(key.k0, key.k1, raw[:at])
	return (lo^binary.LittleEndian.Uint64(raw[at:]))|(hi^binary.LittleEndian.Uint64(raw[at+8:])) == 0
}

// decode64 decodes text of four characters for each three bytes of dst. The library's decoder skips line breaks, which a handle must not
// have, so the characters are looked up here.
func decode64(dst, text []byte) bool {
	var bad byte
	for i := range len(dst) / 3 {
		a, b, c, d := sextets[text[4*i]], sextets[text[4*i+1]], sextets[text[4*i+2]], sextets[text[4*i+3]]
		bad |= a | b | c | d
		dst[3*i] = a<<2 | b>>4
		dst[3*i+1] = b<<4 | c>>2
		dst[3*i+2] = c<<6 | d
	}
	return bad < 64
}

// sextets maps a character of the base64url alphabet to its value, others to 0xff.
var sextets = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for i := range alphabet {
		t[alphabet[i]] = byte(i)
	}
	return t
}()
