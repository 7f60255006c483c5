package txn

import (
	"encoding/binary"
	"math"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// stateVersion is the version of the encoded state. Equal states have equal bytes:
//
//	u8       version
//	uvarint  number of open half messages, then each, by position:
//	           uvarint position less that of the one before, size, topic, queue + 1
//	           varint  stored less that of the one before; varint next check less stored; uvarint checks
//	           u64 tag hash, message-group hash, digest; 16 bytes id
//	uvarint  number of verdicts, then each, oldest first:
//	           uvarint topic, position, varint stored less ended, varint ended less that of the one before
//	           u64 digest; 16 bytes id; u8 source; u8 1 committed, 0 rolled back
const stateVersion = 1

// Encode appends the state to dst.
func (t *Table) Encode(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.AppendUvarint(dst, uint64(t.Len()))
	pos, stored := record.Pos(0), int64(0)
	for s := t.first; s != none; s = t.slots[s].after {
		h := &t.slots[s].Half
		dst = binary.AppendUvarint(dst, uint64(h.Pos-pos))
		dst = binary.AppendUvarint(dst, uint64(h.Size))
		dst = binary.AppendUvarint(dst, uint64(h.Topic))
		dst = binary.AppendUvarint(dst, uint64(h.Queue+1))
		dst = binary.AppendVarint(dst, h.Stored-stored)
		dst = binary.AppendVarint(dst, h.Next-h.Stored)
		dst = binary.AppendUvarint(dst, uint64(h.Checks))
		dst = binary.LittleEndian.AppendUint64(dst, h.TagHash)
		dst = binary.LittleEndian.AppendUint64(dst, h.GroupHash)
		dst = binary.LittleEndian.AppendUint64(dst, h.Digest)
		dst = append(dst, h.ID[:]...)
		pos, stored = h.Pos, h.Stored
	}
	dst = binary.AppendUvarint(dst, uint64(t.ended.n))
	ended := int64(0)
	for i := range t.ended.n {
		v := t.ended.at(i)
		dst = binary.AppendUvarint(dst, uint64(v.Topic))
		dst = binary.AppendUvarint(dst, uint64(v.Pos))
		dst = binary.AppendVarint(dst, v.Stored-v.Ended)
		dst = binary.AppendVarint(dst, v.Ended-ended)
		dst = binary.LittleEndian.AppendUint64(dst, v.Digest)
		dst = append(dst, v.ID[:]...)
		commit := byte(0)
		if v.Commit {
			commit = 1
		}
		dst = append(dst, byte(v.Source), commit)
		ended = v.Ended
	}
	return dst
}

// halfMin and verdictMin are the fewest bytes of one of each: a count must not make more memory than
// its input has.
const (
	halfMin    = 7 + 3*8 + 16
	verdictMin = 4 + 8 + 16 + 2
)

// Decode replaces the table with an encoded one. Any input is safe; what no table encodes is Corrupt.
func (t *Table) Decode(b []byte) error {
	t.reset()
	err := t.decode(b)
	if err != nil {
		t.reset()
	}
	return err
}

func (t *Table) decode(b []byte) error {
	r := reader{b: b}
	if v := r.byte(); v != stateVersion {
		return mqerr.New(mqerr.Corrupt, "transaction table of version %d", v)
	}
	pos, stored := int64(0), int64(0)
	for range r.count(halfMin) {
		pos += r.num(math.MaxInt64)
		h := Half{Pos: record.Pos(pos), Size: uint32(r.num(math.MaxUint32)), Topic: record.TopicID(r.num(math.MaxUint32)), Queue: record.QueueID(r.num(math.MaxInt32) - 1)}
		stored += r.varint()
		h.Stored = stored
		h.Next = stored + r.varint()
		h.Checks = uint32(r.num(math.MaxUint32))
		h.TagHash, h.GroupHash, h.Digest = r.u64(), r.u64(), r.u64()
		copy(h.ID[:], r.raw(16))
		if r.bad || pos < 0 {
			break
		}
		if err := t.Add(h); err != nil {
			return err
		}
	}
	ended := int64(0)
	for range r.count(verdictMin) {
		v := Verdict{Topic: record.TopicID(r.num(math.MaxUint32)), Pos: record.Pos(r.num(math.MaxInt64))}
		since := r.varint()
		ended += r.varint()
		v.Ended, v.Stored = ended, ended+since
		v.Digest = r.u64()
		copy(v.ID[:], r.raw(16))
		v.Source = record.TxnSource(r.byte())
		switch r.byte() {
		case 0:
		case 1:
			v.Commit = true
		default:
			r.bad = true
		}
		if r.bad {
			break
		}
		t.ended.add(v)
	}
	if r.bad || len(r.b) > 0 {
		return mqerr.New(mqerr.Corrupt, "transaction table: its bytes are not what its version says")
	}
	t.ended.forget(t.o.VerdictsMax, math.MinInt64)
	return nil
}

// reader takes an encoded state apart. After the first fault everything is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) raw(n int) []byte {
	if n > len(r.b) {
		r.b, r.bad = nil, true
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) byte() byte {
	if v := r.raw(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *reader) u64() uint64 {
	if v := r.raw(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 1 && r.b[n-1] == 0 { // cut short, too long, or longer than needed
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) num(most int64) int64 {
	v := r.uvarint()
	if v > uint64(most) {
		r.b, r.bad = nil, true
		return 0
	}
	return int64(v)
}

// count reads a number of things of at least size bytes each.
func (r *reader) count(size int) int {
	n := r.num(math.MaxInt32)
	if n*int64(size) > int64(len(r.b)) {
		r.b, r.bad = nil, true
		return 0
	}
	return int(n)
}
