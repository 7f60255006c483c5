package index

import "github.com/perigee-mq/perigee/store/record"

// span says what entries a run has, without the entries.
type span struct {
	first, last record.Pos // of the first and of the last message
	min, max    int64      // store times of these, ms since 1970
	count       uint32     // entries, at least 1
	sum         uint64     // over the entries, in any order
}

// Bounds of a run: positions are kept as the distance from the first in units of record.Align.
const (
	spanMax       = (1<<32 - 1) * record.Align
	runEntriesMax = 1 << 24
)

// add puts one entry into the span.
func (s *span) add(hash uint64, pos record.Pos, at int64) {
	if s.count == 0 {
		s.first, s.min = pos, at
	}
	s.last, s.max = pos, at
	s.count++
	s.sum += mix(hash ^ mix(uint64(pos)))
}

// mix spreads the bits of a number over the whole word: each step can be undone, so different numbers
// stay different.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

// state says where the entries of a run are.
type state uint8

const (
	pending state = iota // in memory, the file is to be written
	stored               // in the file, as far as known
	missing              // in the log only
	lost                 // the log does not have them either: a look-up says so
)

// run is one run. It never changes once it is in the list.
type run struct {
	span
	state   state
	entries []entry // of a pending run, by position
	part    *span   // what the file has, if the log did not have all when it was rebuilt
	holed   bool    // some of what the file does not have is damaged, or in a hole of the log
}

// inFile is what the file of the run has. Its name is that of the whole run.
func (r *run) inFile() *span {
	if r.part != nil {
		return r.part
	}
	return &r.span
}
