package brokerapi

import "github.com/dchest/siphash"

// Key words of SipHash-2-4 with key bytes 00..0f, as the official clients use it.
const (
	sipKey0 = 0x0706050403020100
	sipKey1 = 0x0f0e0d0c0b0a0908
)

// HashTag is the hash of a tag in queue entries, never 0. Equal tags have equal hashes; a match is
// confirmed by text.
func HashTag(tag []byte) uint64 { return nonZero(tag) }

// HashGroup is the hash of a message group: it chooses the queue and names the group's lock. Never 0.
func HashGroup(group []byte) uint64 { return nonZero(group) }

// HashMessage is the hash of a message id within its topic.
func HashMessage(topic TopicID, id []byte) uint64 {
	return siphash.Hash(sipKey0^uint64(topic), sipKey1, id)
}

// HashClient names a client in events, never 0. That two clients share a hash does no harm: one of them
// is woken in vain.
func HashClient(id string) uint64 { return nonZero([]byte(id)) }

func nonZero(b []byte) uint64 {
	if h := siphash.Hash(sipKey0, sipKey1, b); h != 0 {
		return h
	}
	return 1
}
