package record

import (
	"math"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Move is the body of a TypeMove record: a record that is still referred to is carried forward out of a
// segment that is about to be deleted. Who refers to From refers to this record now.
type Move struct {
	From    Pos   // where the record was written at first, however often it moved
	Version uint8 // Version, Type, Epoch and Time of that record's header
	Type    Type
	Epoch   Epoch
	Time    int64
	Body    []byte // its body
}

// put says the layout of a Move:
//
//	uvarint position the record was written at first
//	byte version, byte type, uvarint epoch, uvarint time: of that record's header
//	its body as the rest
func (m *Move) put(s *sink) {
	s.num(int64(m.From))
	s.u8(m.Version)
	s.u8(uint8(m.Type))
	s.uvarint(uint64(m.Epoch))
	s.num(m.Time)
	s.raw(m.Body)
}

// MoveSize is the length of m as a body.
func MoveSize(m *Move) int {
	var s sink
	m.put(&s)
	return s.n
}

// PutMove writes m to dst, MoveSize bytes long.
func PutMove(dst []byte, m *Move) {
	s := start(dst)
	m.put(&s)
	s.end(dst)
}

// DecodeMove reads the body of a TypeMove record.
func DecodeMove(body []byte) (m Move, err error) {
	s := source{b: body}
	m.From, m.Version, m.Type, m.Epoch, m.Time = s.pos(), s.u8(), Type(s.u8()), Epoch(s.uvarint()), s.num(math.MaxInt64)
	m.Body = s.span(uint64(len(s.b)))
	return m, s.end(TypeMove)
}

// Unwrap is the record that a TypeMove record carries, with the position at which it was written first;
// any other record is returned as it is. The header has no checksum and no flags, and a size as if the record
// were written now: the bytes in the log are those of the Move. A Move carries messages (TypeMsg, TypeDead)
// and nothing else: all else is Corrupt. A message of a later release is Unsupported.
func Unwrap(r Record) (Record, error) {
	if r.Type != TypeMove {
		return r, nil
	}
	m, err := DecodeMove(r.Body)
	if err != nil {
		return Record{}, err
	}
	size := Total(len(m.Body))
	h := Header{
		Type: m.Type, Version: m.Version, Size: uint32(size), Tail: uint16(size - HeaderSize - len(m.Body)), Pos: m.From, Epoch: m.Epoch, Time: m.Time,
	}
	if err := h.Supported(); err != nil {
		return Record{}, err
	}
	if m.Type != TypeMsg && m.Type != TypeDead {
		return Record{}, mqerr.New(mqerr.Corrupt, "MOVE record at %d carries a record of type %v, and only messages are carried", r.Pos, m.Type)
	}
	return Record{Header: h, Body: m.Body}, nil
}

// Wrap is the Move that carries a record which Unwrap returned, or one that was never moved.
func Wrap(r *Record) Move {
	return Move{From: r.Pos, Version: r.Version, Type: r.Type, Epoch: r.Epoch, Time: r.Time, Body: r.Body}
}

// Snapshot is the body of a TypeSnapshot record: a chunk of the base state of every view at a position.
// The chunks of one snapshot count from 0 without a gap and are of one epoch; a chunk 0 begins anew.
type Snapshot struct {
	At    Pos // all records below are in the state
	Chunk uint32
	Last  bool   // the snapshot is complete
	View  []byte // name of the view the data belongs to
	Data  []byte
}

const snapshotLast uint8 = 1

// put says the layout of a Snapshot:
//
//	uvarint position the snapshot stands for, uvarint chunk, byte flags (1 last)
//	uvarint length and name of the view, the data as the rest
func (p *Snapshot) put(s *sink) {
	flags := uint8(0)
	if p.Last {
		flags = snapshotLast
	}
	s.num(int64(p.At))
	s.uvarint(uint64(p.Chunk))
	s.u8(flags)
	s.bytes(p.View)
	s.raw(p.Data)
}

// SnapshotSize is the length of p as a body.
func SnapshotSize(p *Snapshot) int {
	var s sink
	p.put(&s)
	return s.n
}

// PutSnapshot writes p to dst, SnapshotSize bytes long.
func PutSnapshot(dst []byte, p *Snapshot) {
	s := start(dst)
	p.put(&s)
	s.end(dst)
}

// DecodeSnapshot reads the body of a TypeSnapshot record.
func DecodeSnapshot(body []byte) (p Snapshot, err error) {
	s := source{b: body}
	p.At, p.Chunk = s.pos(), s.id32()
	p.Last = s.flags(snapshotLast) != 0
	p.View = s.bytes()
	p.Data = s.span(uint64(len(s.b)))
	return p, s.end(TypeSnapshot)
}
