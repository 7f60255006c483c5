// Package checkpoint is the saved state of a broker's views at one position of its log: one file for
// each checkpoint, replaced atomically, the last two kept.
//
// A checkpoint saves time and nothing else: what it says can be found again by replaying the log. So a
// damaged one is left aside and the one before it counts; a start without any replays the whole log.
// docs/format/checkpoint.md draws the file.
package checkpoint

import (
	"slices"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Section is the state of one view.
type Section struct {
	Name string // 1..255 bytes, unique in a checkpoint
	Data []byte
	// More are further pieces of the data, behind Data: a view that is too large to be copied on the way
	// into a file gives its memory in pieces. A section that was read has all of it in Data.
	More [][]byte
}

// Len is the length of the data in bytes.
func (s *Section) Len() int64 {
	n := int64(len(s.Data))
	for _, p := range s.More {
		n += int64(len(p))
	}
	return n
}

// Bytes returns the data in one piece.
func (s *Section) Bytes() []byte {
	if len(s.More) == 0 {
		return s.Data
	}
	return append(slices.Clip(s.Data), slices.Concat(s.More...)...)
}

// Checkpoint is the state of all views at Pos: the log from there on brings them up to date.
type Checkpoint struct {
	Pos      record.Pos
	Sections []Section
}

// Section returns the data of a section. One that is missing is an error of kind Corrupt.
func (c *Checkpoint) Section(name string) ([]byte, error) {
	for _, s := range c.Sections {
		if s.Name == name {
			return s.Bytes(), nil
		}
	}
	return nil, mqerr.New(mqerr.Corrupt, "checkpoint at %d has no section %q", c.Pos, name)
}
