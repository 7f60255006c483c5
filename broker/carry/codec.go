package carry

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// stateVersion is the version of the encoded table. Equal tables have equal bytes:
//
//	u8       version
//	uvarint  position below which the newest finished step has deleted
//	uvarint  number of carried messages, then each, by the position it was written at first:
//	           uvarint that position less the one before (0 at first), its present one less that, size
//	uvarint  number of queues with held entries, then each, by topic and queue:
//	           uvarint topic, queue, number of entries, then each, by offset:
//	             uvarint offset less that of the one before (0 at first), position, size
//	             uvarint time; u64 tag hash, message-group hash
//	uvarint  number of counts of lost messages, then each, by group and topic: uvarint group, topic, count
const stateVersion = 1

// Encode appends the table to dst.
func (t *Table) Encode(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.AppendUvarint(dst, uint64(t.begin))
	dst = binary.AppendUvarint(dst, uint64(len(t.moved)))
	last := record.Pos(0)
	for i := range t.moved {
		m := &t.moved[i]
		dst = binary.AppendUvarint(dst, uint64(m.from-last))
		dst = binary.AppendUvarint(dst, uint64(m.Pos-m.from))
		dst = binary.AppendUvarint(dst, uint64(m.Size))
		last = m.from
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.held)))
	for _, k := range t.HeldQueues() {
		dst = appendHeld(dst, k, t.held[k])
	}
	dst = binary.AppendUvarint(dst, uint64(len(t.lost)))
	for _, r := range slices.SortedFunc(maps.Keys(t.lost), Reader.compare) {
		dst = binary.AppendUvarint(dst, uint64(r.Group))
		dst = binary.AppendUvarint(dst, uint64(r.Topic))
		dst = binary.AppendUvarint(dst, uint64(t.lost[r]))
	}
	return dst
}

func (r Reader) compare(o Reader) int {
	return cmp.Or(cmp.Compare(r.Group, o.Group), cmp.Compare(r.Topic, o.Topic))
}

func appendHeld(dst []byte, k queue.Key, list []record.Held) []byte {
	dst = binary.AppendUvarint(dst, uint64(k.Topic))
	dst = binary.AppendUvarint(dst, uint64(k.Queue))
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	last := record.QueueOffset(0)
	for i := range list {
		h := &list[i]
		dst = binary.AppendUvarint(dst, uint64(h.Offset-last))
		dst = binary.AppendUvarint(dst, uint64(h.Pos))
		dst = binary.AppendUvarint(dst, uint64(h.Size))
		dst = binary.AppendUvarint(dst, uint64(h.Time))
		dst = binary.LittleEndian.AppendUint64(dst, h.TagHash)
		dst = binary.LittleEndian.AppendUint64(dst, h.GroupHash)
		last = h.Offset
	}
	return dst
}

// The fewest bytes of one of each: a count must not make more memory than its input has.
const (
	movedMin = 3
	heldMin  = 4 + 2*8
	queueMin = 3 + heldMin
	lostMin  = 3
)

// Decode replaces the table with an encoded one. Any input is safe; what no table encodes is Corrupt, and
// leaves the table as it was.
func (t *Table) Decode(b []byte) error {
	r := reader{b: b}
	if v := r.byte(); v != stateVersion && !r.bad {
		return mqerr.New(mqerr.Unsupported, "table of carried messages of version %d, this release knows %d", v, stateVersion)
	}
	n := New()
	n.begin = record.Pos(r.num(math.MaxInt64))
	n.moved = r.moved()
	var last *queue.Key
	for range r.count(queueMin) {
		k, list := r.held()
		r.must(last == nil || last.Compare(k) < 0)
		if r.bad {
			break
		}
		n.held[k], last = list, &k
	}
	var before *Reader
	for range r.count(lostMin) {
		who := Reader{Group: record.GroupID(r.num(math.MaxUint32)), Topic: record.TopicID(r.num(math.MaxUint32))}
		count := r.num(math.MaxInt64)
		r.must(count > 0 && (before == nil || before.compare(who) < 0))
		if r.bad {
			break
		}
		n.lost[who], before = count, &who
	}
	if r.bad || len(r.b) > 0 {
		return mqerr.New(mqerr.Corrupt, "table of carried messages: its bytes are not what its version says")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moved, t.held, t.lost, t.begin = n.moved, n.held, n.lost, n.begin
	return nil
}

func (r *reader) moved() []moved {
	n := r.count(movedMin)
	list := make([]moved, 0, n)
	last := int64(0)
	for i := range n {
		gap := r.num(math.MaxInt64 - last)
		r.must(i == 0 || gap > 0)
		last += gap
		m := moved{from: record.Pos(last)}
		m.Pos = record.Pos(last + r.num(math.MaxInt64-last))
		m.Size = uint32(r.num(math.MaxUint32))
		r.must(m.Pos > m.from && m.Size >= record.HeaderSize)
		if r.bad {
			return nil
		}
		list = append(list, m)
	}
	return list
}

func (r *reader) held() (queue.Key, []record.Held) {
	k := queue.Key{Topic: record.TopicID(r.num(math.MaxUint32)), Queue: record.QueueID(r.num(math.MaxInt32))}
	n := r.count(heldMin)
	r.must(n > 0)
	list := make([]record.Held, 0, n)
	last := int64(0)
	for i := range n {
		gap := r.num(math.MaxInt64 - last)
		r.must(i == 0 || gap > 0)
		last += gap
		h := record.Held{
			Offset: record.QueueOffset(last), Pos: record.Pos(r.num(math.MaxInt64)), Size: uint32(r.num(math.MaxUint32)), Time: r.num(math.MaxInt64),
			TagHash: r.u64(), GroupHash: r.u64(),
		}
		if r.bad {
			return k, nil
		}
		list = append(list, h)
	}
	return k, list
}

// reader takes an encoded state apart. After the first fault everything is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) must(ok bool) {
	if !ok {
		r.b, r.bad = nil, true
	}
}

func (r *reader) byte() byte {
	if r.must(len(r.b) > 0); r.bad {
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) u64() uint64 {
	if r.must(len(r.b) >= 8); r.bad {
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// num reads a number of at most limit, in its shortest form.
func (r *reader) num(limit int64) int64 {
	v, n := binary.Uvarint(r.b)
	if r.must(n > 0 && v <= uint64(limit) && (n == 1 || r.b[n-1] != 0)); r.bad {
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

// count reads a number of things of at least size bytes each.
func (r *reader) count(size int) int {
	n := r.num(math.MaxInt32)
	if r.must(n*int64(size) <= int64(len(r.b))); r.bad {
		return 0
	}
	return int(n)
}
