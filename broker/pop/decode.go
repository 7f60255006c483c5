package pop

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Decode replaces the state with an encoded one. Nothing that was handed out is ready until Advance. After an error the
// table is as it was.
func (t *Table) Decode(b []byte) error {
	if len(b) == 0 {
		return corrupt("in-flight table: no bytes")
	}
	if b[0] != stateVersion && b[0] != stateUnbound {
		return mqerr.New(mqerr.Unsupported, "in-flight table of version %d, this release knows %d", b[0], stateVersion)
	}
	d := decoder{reader: reader{b: b[1:]}, t: New(t.o), unbound: b[0] == stateUnbound}
	d.t.clients.next = record.ClientNum(d.upTo(math.MaxUint32))
	last := int64(0)
	for range d.uvarint() {
		if last = d.client(last); d.bad != "" {
			break
		}
	}
	var key *Key
	for range d.uvarint() {
		if key = d.queue(key); d.bad != "" {
			break
		}
	}
	d.enter()
	d.must(len(d.b) == 0, "bytes behind the end")
	if d.bad != "" {
		return corrupt("in-flight table: %s", d.bad)
	}
	*t = *d.t
	return nil
}

// decoder fills a new table. Its methods return at the first fault.
type decoder struct {
	reader
	t        *Table
	sessions []uint32 // messages under session leases
	passedBy *overlap // what was passed over in the queue being read, nil without order
	unbound  bool     // only session leases name their client, and they are not flagged
}

// client reads one client; its number must be above last. It returns the number.
func (d *decoder) client(last int64) int64 {
	num := int64(d.upTo(math.MaxUint32))
	name := d.bytes()
	ended := int64(d.upTo(uint64(untilMax)))
	d.must(num > last, "clients out of order")
	d.must(d.t.clients.byName[string(name)] == nil, "client twice")
	d.must(len(name) == 0 || ended == forever, "client with an ended session has a name")
	if d.bad != "" {
		return last
	}
	next := d.t.clients.next
	c := d.t.define(record.ClientNum(num), string(name))
	d.t.clients.next = next
	if c.ended = ended; len(name) == 0 {
		delete(d.t.clients.byName, "")
	}
	c.tried = d.uvarint()
	n := d.upTo(min(triesMax, c.tried))
	d.must(n == 0 || len(name) > 0, "client with an ended session has leases to repeat")
	since := min(triesMax, c.tried)
	for range n {
		d.must(since > 0, "lease to repeat out of order")
		if d.bad != "" {
			break
		}
		since = d.upTo(since - 1)
		c.tries = append(c.tries, d.try(c.tried-since))
	}
	return num
}

func (d *decoder) try(no uint64) try {
	y := try{
		no:    no,
		topic: record.TopicID(d.upTo(math.MaxUint32)),
		group: record.GroupID(d.upTo(math.MaxUint32)),
		lease: record.Pos(d.upTo(uint64(posMax)>>3)) << 3,
	}
	id, runs := d.bytes(), d.bytes()
	d.must(len(id) > 0, "attempt id without bytes")
	d.runs(runs)
	y.id = len(id)
	y.data = append(append(make([]byte, 0, len(id)+len(runs)), id...), runs...)
	return y
}

// runs checks the runs of a try.
func (d *decoder) runs(b []byte) {
	r := reader{b: b}
	total := uint64(0)
	for len(r.b) > 0 && r.bad == "" {
		r.upTo(math.MaxUint32)
		first := r.upTo(math.MaxInt64)
		n := r.upTo(leaseMax)
		total += n
		r.must(n > 0 && total <= leaseMax && first <= math.MaxInt64-n, "run out of range")
	}
	d.must(r.bad == "", r.bad)
}

// queue reads one queue; its key must be above last. It returns the key.
func (d *decoder) queue(last *Key) *Key {
	k := Key{
		Group: record.GroupID(d.upTo(math.MaxUint32)),
		Topic: record.TopicID(d.upTo(math.MaxUint32)),
		Queue: record.QueueID(uint32(d.upTo(math.MaxUint32))),
	}
	next := int64(d.upTo(math.MaxInt64))
	d.must(last == nil || last.Compare(k) < 0, "queues out of order")
	if d.bad != "" {
		return last
	}
	order := d.upTo(orderWas)
	q := d.t.decoded(k, next, order == orderIs)
	var locks []uint32
	if d.passedBy = nil; order != 0 {
		locks = d.locks(q)
		d.passedBy = d.t.overlapOf(locks)
	}
	no := int64(-1)
	var run alike
	for range d.uvarint() {
		no += int64(d.upTo(uint64(math.MaxInt64>>6 - no)))
		live := d.u64()
		d.must(no >= 0 && live != 0 && no<<6|int64(63-bits.LeadingZeros64(live)) < next, "page out of range")
		if d.bad != "" {
			break
		}
		if p, id := d.t.makePage(q, no); p.live == 0 {
			run = d.page(q, p, id, live, run, locks)
		} else {
			d.must(false, "page twice")
		}
	}
	d.settle(q, locks)
	return &k
}

// page reads the un-done messages of a page. It returns the last run.
func (d *decoder) page(q *queue, p *page, id uint32, live uint64, run alike, locks []uint32) alike {
	for live != 0 {
		n := d.upTo(64)
		run.attempt = uint16(d.upTo(math.MaxUint16))
		run.flags = flags(d.upTo(uint64(kept | bound)))
		run.client = record.ClientNum(d.upTo(math.MaxUint32))
		if d.unbound && run.client != 0 {
			d.must(run.flags == 0, "session lease out of place")
			run.flags = bound
		}
		if q.ordered {
			i := d.upTo(math.MaxUint32)
			if d.must(i < uint64(len(locks)), "lock out of range"); d.bad != "" {
				break
			}
			run.lock = locks[i]
		}
		run.lease += d.varint()
		run.until += d.varint()
		d.must(n > 0 && int(n) <= bits.OnesCount64(live), "run out of range")
		d.must(run.attempt > 0 && run.lease >= 0 && run.lease <= int64(posMax)>>3 && run.until >= 0 && run.until <= untilMax, "lease out of range")
		c := d.t.clients.byNum[run.client]
		d.must(run.client == 0 || c != nil, "message of a client that is not known")
		switch run.flags {
		case 0:
		case kept:
			d.must(c == nil, "message that was given back has a client")
		case bound:
			d.must(c != nil, "session lease out of place")
		default:
			d.must(false, "flags out of range")
		}
		if d.bad != "" {
			break
		}
		for ; n > 0; n-- {
			s := d.t.add(q, p, id, lowest(live))
			d.must(d.passedBy == nil || !d.passedBy.has(s.offset()), "handed out and passed over")
			d.message(s, c, run)
			if q.ordered {
				d.t.join(s, run.lock)
				l := d.t.locks.at(run.lock)
				d.must(l.passed == nil || l.passed.head.first > s.offset(), "handed out before an older one of its group")
			}
			live &= live - 1
		}
	}
	return run
}

// message sets one un-done message; c is nil for a plain lease.
func (d *decoder) message(s spot, c *client, run alike) {
	d.t.reset(s.id)
	s.node.setLease(record.Pos(run.lease) << 3)
	s.node.setUntil(run.until, run.attempt)
	if run.flags&kept != 0 {
		s.node.set(kept | waits)
		s.queue.waiting++
	}
	if c != nil {
		s.node.client = c.num
		c.held++
	}
	if run.flags&kept == 0 {
		d.t.hold(s)
	}
	if run.flags&bound != 0 {
		d.sessions = append(d.sessions, s.id)
	} else {
		d.t.schedule(s.id, s.node, run.until)
	}
}

// enter gives the session leases to their clients, in the order of the lists.
func (d *decoder) enter() {
	slices.SortFunc(d.sessions, func(a, b uint32) int { return cmp.Compare(d.t.node(a).until(), d.t.node(b).until()) })
	for _, id := range d.sessions {
		s := d.t.spotOf(id)
		d.t.enter(d.t.clients.byNum[s.node.client], s, s.node.until(), 0)
	}
	for _, c := range d.t.clients.byNum {
		d.must(c.name != "" || c.held > 0, "client that is gone and holds nothing")
	}
}

// Compare orders keys by group, topic, queue.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Group, o.Group), cmp.Compare(k.Topic, o.Topic), cmp.Compare(k.Queue, o.Queue))
}

// reader reads numbers and bytes. After the first fault, which bad describes, it returns zeros.
type reader struct {
	b   []byte
	bad string
}

func (r *reader) must(ok bool, what string) {
	if !ok && r.bad == "" {
		r.bad, r.b = what, nil
	}
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.must(false, "cut short")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.must(false, "cut short")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// upTo reads a number of at most bound.
func (r *reader) upTo(bound uint64) uint64 {
	v := r.uvarint()
	if v > bound {
		r.must(false, "number out of range")
		return 0
	}
	return v
}

func (r *reader) u64() uint64 {
	if len(r.b) < 8 {
		r.must(false, "cut short")
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// bytes returns a part of the input.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.must(false, "cut short")
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}
