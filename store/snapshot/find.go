package snapshot

import (
	"errors"

	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/record"
)

// Found is a complete snapshot of a log.
type Found struct {
	// Begin is the position from which on the log is needed: where the TRIM before the snapshot let it begin. The
	// records of [Begin, At) say what the queues hold.
	Begin record.Pos
	// At is the position that the sections stand for: a replay goes on there.
	At record.Pos
	// From is the first record of the snapshot, End the end of its last.
	From, End record.Pos
	Epoch     record.Epoch
	Sections  []checkpoint.Section
}

// Checkpoint is the state as a checkpoint at At, without the entries of queues.
func (f *Found) Checkpoint() *checkpoint.Checkpoint {
	return &checkpoint.Checkpoint{Pos: f.At, Sections: f.Sections}
}

// Finder finds the first complete snapshot that a log can be rebuilt with, among records in their order. It holds
// the data of one snapshot.
type Finder struct {
	first   record.Pos // where the log begins
	trim    record.Pos // where the last complete TRIM lets it begin; -1: none was met
	trimEnd record.Pos // end of that record
	open    *Found
	next    uint32 // chunk
}

// NewFinder returns a Finder for a log that begins at first.
func NewFinder(first record.Pos) *Finder { return &Finder{first: first, trim: -1} }

// Add takes the next record. It returns a snapshot that it completes. A record that cannot be decoded is Corrupt.
func (f *Finder) Add(r record.Record) (*Found, error) {
	switch r.Type {
	case record.TypeTrim:
		t, err := record.DecodeTrim(r.Body)
		if err != nil {
			return nil, err
		}
		if t.Last {
			f.trim, f.trimEnd = t.At, r.End()
		}
	case record.TypeSnapshot:
		c, err := record.DecodeSnapshot(r.Body)
		if err != nil {
			return nil, err
		}
		return f.chunk(&r, &c), nil
	}
	return nil, nil
}

// chunk adds a chunk to the snapshot that is open. One that does not follow ends it.
func (f *Finder) chunk(r *record.Record, c *record.Snapshot) *Found {
	if c.Chunk == 0 {
		f.open, f.next = f.begin(r, c), 0
	}
	s := f.open
	if s == nil || c.Chunk != f.next || c.At != s.At || r.Epoch != s.Epoch || !s.add(string(c.View), c.Data) {
		f.open = nil
		return nil
	}
	f.next++
	s.End = r.End()
	if !c.Last {
		return nil
	}
	f.open = nil
	return s
}

// begin opens a snapshot, unless the log does not hold what goes with it.
func (f *Finder) begin(r *record.Record, c *record.Snapshot) *Found {
	begin := f.trim
	switch {
	case c.At < f.first || c.At > r.Pos:
		return nil
	case begin < 0 && f.first == 0:
		begin = 0 // nothing was deleted yet
	case begin < f.first || c.At < f.trimEnd:
		// The queues of the snapshot begin at entries that are gone: one of a later position is complete, for the
		// log was cut there.
		return nil
	}
	return &Found{Begin: begin, At: c.At, From: r.Pos, Epoch: r.Epoch}
}

// add appends data to the section of a view; false for one that was complete already.
func (f *Found) add(view string, data []byte) bool {
	if n := len(f.Sections); n > 0 && f.Sections[n-1].Name == view {
		f.Sections[n-1].Data = append(f.Sections[n-1].Data, data...)
		return true
	}
	for i := range f.Sections {
		if f.Sections[i].Name == view {
			return false
		}
	}
	f.Sections = append(f.Sections, checkpoint.Section{Name: view, Data: append([]byte{}, data...)})
	return true
}

var errFound = errors.New("found")

// Find returns the first complete snapshot of a log that begins at first, nil if it has none. scan gives the
// records from a position on, in order, until its function returns an error, which it returns. An error is that
// of scan: of kind Corrupt it may be of a torn tail, which is the end, or of damage.
func Find(first record.Pos, scan func(from record.Pos, fn func(record.Record) error) error) (*Found, error) {
	f := NewFinder(first)
	var found *Found
	err := scan(first, func(r record.Record) error {
		s, err := f.Add(r)
		if err != nil {
			return err
		}
		if s != nil {
			found = s
			return errFound
		}
		return nil
	})
	if found != nil {
		return found, nil
	}
	return nil, err
}
