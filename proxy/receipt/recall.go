package receipt

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Layout of a recall handle before it is written as base64url without padding; numbers are little-endian:
//
//	0   1  version  2: no receipt handle has it
//	1   1  key      id of the key of the MAC, 1 to 255
//	2   3  flags    0; others are refused
//	5   4  topic    id
//	9   4  shard    id of the broker group
//	13  8  position of the message's record
//	21  8  due      ms since 1970
//	29 16  MAC      SipHash-2-4-128 of bytes 0 to 28
//
// 45 bytes are 60 characters with no spare bits, so a handle has exactly one spelling.
const (
	recallVersion = 2
	recallRaw     = 29 + macSize

	// RecallSize is the length of a recall handle in characters.
	RecallSize = recallRaw / 3 * 4
)

// Recall names one delayed message: the text that its sender gets, and gives back to recall it.
type Recall struct {
	Topic     brokerapi.TopicID
	Shard     brokerapi.ShardID
	Ref       brokerapi.LogPos
	DeliverAt int64 // ms since 1970
}

// Append appends the text of h, authenticated with key. It allocates only to grow dst.
func (h Recall) Append(dst []byte, id KeyID, key Key) []byte {
	var raw [recallRaw]byte
	raw[0], raw[1] = recallVersion, byte(id)
	binary.LittleEndian.PutUint32(raw[5:], uint32(h.Topic))
	binary.LittleEndian.PutUint32(raw[9:], uint32(h.Shard))
	binary.LittleEndian.PutUint64(raw[13:], uint64(h.Ref))
	binary.LittleEndian.PutUint64(raw[21:], uint64(h.DeliverAt))
	sign(raw[:], key)
	return base64.RawURLEncoding.AppendEncode(dst, raw[:])
}

// errNoRecall is one value, so that bad handles cost nothing and tell nothing about what is wrong.
var errNoRecall = mqerr.New(mqerr.Invalid, "the recall handle is not one that this cluster gave out")

// DecodeRecall reads the text of a recall handle. Any damage, another spelling included, is Invalid.
func DecodeRecall(text []byte, keys Keys) (Recall, error) {
	var raw [recallRaw]byte
	if len(text) != RecallSize || !decode64(raw[:], text) {
		return Recall{}, errNoRecall
	}
	key, ok := keys.HandleKey(KeyID(raw[1]))
	if !ok {
		return Recall{}, errNoRecall
	}
	if !signed(raw[:], key) || raw[0] != recallVersion || raw[2]|raw[3]|raw[4] != 0 {
		return Recall{}, errNoRecall
	}
	return Recall{
		Topic:     brokerapi.TopicID(binary.LittleEndian.Uint32(raw[5:])),
		Shard:     brokerapi.ShardID(binary.LittleEndian.Uint32(raw[9:])),
		Ref:       brokerapi.LogPos(binary.LittleEndian.Uint64(raw[13:])),
		DeliverAt: int64(binary.LittleEndian.Uint64(raw[21:])),
	}, nil
}
