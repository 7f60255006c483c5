package index

import (
	"encoding/binary"
	"math"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Encode appends the list of runs and the buffer to dst, for a checkpoint. Equal logs give equal bytes,
// whatever of the runs is in files by now:
//
//	uvarint number of runs, each:
//	  uvarint position of the first message less that of the last of the run before (0 at first)
//	  uvarint position of the last message less that of the first
//	  varint store time of the first message less that of the last of the run before (0 at first)
//	  uvarint store time of the last message less that of the first
//	  uvarint entries, 8 bytes sum
//	uvarint entries of the buffer; if there are any:
//	  varint and uvarint store times as of a run
//	  for each: 8 bytes hash, uvarint position less that of the entry before (of the last run at first)
func (s *Store) Encode(dst []byte) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	dst = binary.AppendUvarint(dst, uint64(len(s.runs)))
	last, at := record.Pos(0), int64(0)
	for _, r := range s.runs {
		dst = binary.AppendUvarint(dst, uint64(r.first-last))
		dst = binary.AppendUvarint(dst, uint64(r.last-r.first))
		dst = appendTimes(dst, &r.span, at)
		dst = binary.AppendUvarint(dst, uint64(r.count))
		dst = binary.LittleEndian.AppendUint64(dst, r.sum)
		last, at = r.last, r.max
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.buffer)))
	if len(s.buffer) == 0 {
		return dst
	}
	dst = appendTimes(dst, &s.open, at)
	for _, e := range s.buffer {
		dst = binary.LittleEndian.AppendUint64(dst, e.hash)
		dst = binary.AppendUvarint(dst, uint64(e.pos-last))
		last = e.pos
	}
	return dst
}

func appendTimes(dst []byte, s *span, before int64) []byte {
	dst = binary.AppendVarint(dst, s.min-before)
	return binary.AppendUvarint(dst, uint64(s.max-s.min))
}

// Decode replaces the index with the one of a checkpoint. It reads no file: runs without one are missing
// from now on. Anything that Encode does not write is Corrupt, and leaves the index empty.
func (s *Store) Decode(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs, s.buffer, s.open, s.pending = nil, nil, span{}, 0
	d := decoder{b: b}
	runs, end := d.runs()
	buffer, open := d.buffer(s.o.RunEntries, end)
	if d.bad || len(d.b) > 0 {
		return mqerr.New(mqerr.Corrupt, "the index section of the checkpoint is not what an index encodes to")
	}
	wait := false
	for _, r := range runs {
		if r.state = stored; !s.files[fileName(r.first)] {
			r.state, wait = missing, true
		}
	}
	s.runs, s.buffer, s.open = runs, buffer, open
	if wait {
		s.ring()
	}
	return nil
}

// decoder takes numbers off a section. After the first fault everything is zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) fail() { d.bad, d.b = true, nil }

// uvarint returns a number of at most limit, in its shortest form.
func (d *decoder) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > limit || n > 1 && d.b[n-1] == 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) u64() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// pos returns a position behind, or at, another one.
func (d *decoder) pos(from record.Pos, most uint64) record.Pos {
	return from + record.Pos(d.uvarint(min(most, uint64(math.MaxInt64-from))))
}

// times reads the store times of a run behind another one.
func (d *decoder) times(s, before *span) {
	gap, n := binary.Varint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 || gap < 0 && before.count > 0 || before.max > math.MaxInt64-max(gap, 0) {
		d.fail()
		return
	}
	d.b = d.b[n:]
	s.min = before.max + gap
	s.max = s.min + int64(d.uvarint(uint64(math.MaxInt64-max(s.min, 0))))
}

// runs returns the runs and, in end, where the last one ends.
func (d *decoder) runs() (runs []*run, end span) {
	n := d.uvarint(uint64(len(d.b) / 13)) // the least that a run takes
	for range n {
		r := new(run)
		r.first = d.pos(end.last, math.MaxInt64)
		r.last = d.pos(r.first, spanMax)
		d.times(&r.span, &end)
		r.count = uint32(d.uvarint(runEntriesMax))
		r.sum = d.u64()
		if r.count == 0 || end.count > 0 && r.first == end.last {
			d.fail()
		}
		if d.bad {
			return nil, span{}
		}
		runs, end = append(runs, r), r.span
	}
	return runs, end
}

// buffer returns the entries behind the last run.
func (d *decoder) buffer(room int, end span) (buffer []entry, open span) {
	n := int(d.uvarint(min(runEntriesMax, uint64(len(d.b)/9))))
	if n == 0 || d.bad {
		return nil, open
	}
	var t span
	d.times(&t, &end)
	buffer = make([]entry, 0, max(room, n))
	last := end.last
	for range n {
		hash := d.u64()
		last = d.pos(last, math.MaxInt64)
		buffer = append(buffer, entry{hash, last})
		open.add(hash, last, t.min)
	}
	open.max = t.max
	if end.count > 0 && open.first == end.last {
		d.fail()
	}
	return buffer, open
}
