package index

import (
	"encoding/binary"

	"github.com/dchest/siphash"

	"github.com/perigee-mq/perigee/store/record"
)

// Kind says what of a message a hash is of.
type Kind uint8

// Kinds.
const (
	Key Kind = 1 // one of the message's keys
	ID  Kind = 2 // the message id
)

// seed is the second word of the hash's key; the first has topic and kind.
const seed = 0x7065726967656531

// Hash is the hash under which the messages of a topic are found that have such a key or id.
func Hash(topic record.TopicID, kind Kind, text []byte) uint64 {
	return siphash.Hash(uint64(topic)<<8|uint64(kind), seed, text)
}

// KeysMax is how many keys of one message can be looked up.
const KeysMax = 256

// Hashes appends to dst what a message is found by: its id, and its first KeysMax keys. An empty key is
// none.
func Hashes(dst []uint64, m *record.Msg) []uint64 {
	dst = append(dst, Hash(m.Topic, ID, m.ID))
	most := len(dst) + KeysMax
	for key := range Keys(m.Sys) {
		if len(dst) == most {
			break
		}
		if len(key) > 0 {
			dst = append(dst, Hash(m.Topic, Key, key))
		}
	}
	return dst
}

// keysField is the number of SystemProperties.keys in the public protocol.
const keysField = 2

// Keys are the keys in encoded SystemProperties; they alias the bytes. Those were checked when the message
// came in: anything malformed ends the list.
func Keys(sys []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		b := sys
		for len(b) > 0 {
			head, n := binary.Uvarint(b)
			if n <= 0 {
				return
			}
			b = b[n:]
			switch head & 7 {
			case 0:
				_, n = binary.Uvarint(b)
			case 1:
				n = 8
			case 5:
				n = 4
			case 2:
				size, m := binary.Uvarint(b)
				if m <= 0 || size > uint64(len(b)-m) {
					return
				}
				if head>>3 == keysField && !yield(b[m:m+int(size)]) {
					return
				}
				n = m + int(size)
			default:
				return
			}
			if n <= 0 || n > len(b) {
				return
			}
			b = b[n:]
		}
	}
}

// OfRecord appends to dst what the message that a record stores, or carries forward, is found by; most records
// have none.
func OfRecord(dst []uint64, r *record.Record) ([]uint64, error) {
	switch r.Type {
	case record.TypeMove:
		in, err := record.Unwrap(*r)
		if err != nil {
			return dst, err
		}
		return OfRecord(dst, &in)
	case record.TypeMsg:
		m, err := record.DecodeMsg(r.Body)
		if err != nil {
			return dst, err
		}
		return Hashes(dst, &m), nil
	case record.TypeDead:
		d, err := record.DecodeDead(r.Body)
		if err != nil {
			return dst, err
		}
		return Hashes(dst, &d.Msg), nil
	}
	return dst, nil
}
