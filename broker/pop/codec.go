package pop

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/perigee-mq/perigee/store/record"
)

// stateVersion is the version of the encoded state. Equal states have equal bytes:
//
//	u8       version
//	uvarint  next client number to try
//	uvarint  number of clients, then each, by number:
//	           uvarint number; bytes name, empty if the session has ended; uvarint ended, ms
//	           uvarint leases with an attempt id so far
//	           uvarint number of those remembered, then each, oldest first:
//	             uvarint leases since, topic, group, lease/8; bytes attempt id; bytes runs (see try)
//	uvarint  number of queues, then each, by group, topic, queue:
//	           uvarint group, topic, queue, next, order: 0, 1 ordered, 2 not any more but something is passed over
//	           uvarint number of locks, if order is not 0, then each, by hash:
//	             u64 hash, little-endian; uvarint passed-over spans, each: uvarint gap*2 + many; uvarint count-2, if many
//	           uvarint number of pages, then each, in order:
//	             uvarint page number minus that of the page before (from -1)
//	             u64 un-done offsets, little-endian; then the longest runs of un-done ones that are alike:
//	               uvarint count, attempt, flags, client; index of the lock, if order is 1
//	               varint  lease/8, until: each minus the one before in the queue
//
// "bytes" is a uvarint length and the bytes.
//
// Flags are 1 for a message that was given back and 4 for a session lease. Version 2 had no 4: its session
// leases, and no other, name a client.
const (
	stateVersion = 3
	stateUnbound = 2
)

// Encode appends the state to dst.
func (t *Table) Encode(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.AppendUvarint(dst, uint64(t.clients.next))
	dst = binary.AppendUvarint(dst, uint64(len(t.clients.byNum)))
	for _, c := range t.clients.sorted() {
		dst = t.encodeClient(dst, c)
	}
	all := make([]*queue, 0, len(t.byKey))
	for _, q := range t.byKey {
		if q.recorded {
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *queue) int {
		return cmp.Or(cmp.Compare(a.key.Group, b.key.Group), cmp.Compare(a.key.Topic, b.key.Topic), cmp.Compare(a.key.Queue, b.key.Queue))
	})
	dst = binary.AppendUvarint(dst, uint64(len(all)))
	for _, q := range all {
		dst = t.encodeQueue(dst, q)
	}
	return dst
}

func appendBytes[B ~string | ~[]byte](dst []byte, b B) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func (t *Table) encodeClient(dst []byte, c *client) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.num))
	dst = appendBytes(dst, c.name)
	dst = binary.AppendUvarint(dst, uint64(c.ended))
	dst = binary.AppendUvarint(dst, c.tried)
	left := make([]*try, 0, len(c.tries))
	for i := range c.tries {
		if t.left(&c.tries[i]) {
			left = append(left, &c.tries[i])
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(left)))
	for _, y := range left {
		dst = binary.AppendUvarint(dst, c.tried-y.no)
		dst = binary.AppendUvarint(dst, uint64(y.topic))
		dst = binary.AppendUvarint(dst, uint64(y.group))
		dst = binary.AppendUvarint(dst, uint64(y.lease)>>3)
		dst = appendBytes(dst, y.data[:y.id])
		dst = appendBytes(dst, y.data[y.id:])
	}
	return dst
}

// alike is what a run of messages has in common.
type alike struct {
	lease   int64 // position / 8
	until   int64
	client  record.ClientNum
	attempt uint16
	flags   flags
	lock    uint32 // encoded as its index in the locks by hash
}

func (t *Table) alike(s spot) alike {
	n := s.node
	a := alike{lease: int64(n.lease()) >> 3, until: n.until(), client: n.client, attempt: n.attempt(), flags: flags(n.a[0]) & (kept | bound)}
	if s.queue.ordered {
		a.lock = t.link(s.id).lock
	}
	return a
}

func (t *Table) encodeQueue(dst []byte, q *queue) []byte {
	dst = binary.AppendUvarint(dst, uint64(q.key.Group))
	dst = binary.AppendUvarint(dst, uint64(q.key.Topic))
	dst = binary.AppendUvarint(dst, uint64(uint32(q.key.Queue)))
	dst = binary.AppendUvarint(dst, uint64(q.next))
	dst, index := t.encodeLocks(dst, q)
	pages := 0
	t.eachPage(q, func(*page) { pages++ })
	dst = binary.AppendUvarint(dst, uint64(pages))
	no := int64(-1)
	var last alike
	t.eachPage(q, func(p *page) {
		dst = binary.AppendUvarint(dst, uint64(p.no-no))
		dst = binary.LittleEndian.AppendUint64(dst, p.live)
		no = p.no
		for set := p.live; set != 0; {
			run := t.alike(t.spotIn(q, p, lowest(set)))
			n := 0
			for set != 0 && t.alike(t.spotIn(q, p, lowest(set))) == run {
				set &= set - 1
				n++
			}
			dst = binary.AppendUvarint(dst, uint64(n))
			dst = binary.AppendUvarint(dst, uint64(run.attempt))
			dst = binary.AppendUvarint(dst, uint64(run.flags))
			dst = binary.AppendUvarint(dst, uint64(run.client))
			if q.ordered {
				dst = binary.AppendUvarint(dst, uint64(index[run.lock]))
			}
			dst = binary.AppendVarint(dst, run.lease-last.lease)
			dst = binary.AppendVarint(dst, run.until-last.until)
			last = run
		}
	})
	return dst
}
