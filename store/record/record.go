// Package record is one record of the CommitLog on disk: header, body layouts, encode, decode,
// checksum.
//
// The CommitLog is the only source of truth of a broker; everything a client can observe is a
// record here or a pure function of records (docs/format/record.md draws every layout). A record
// is a fixed header and a body whose layout depends on the type. All integers are little-endian;
// "uvarint" is the encoding of encoding/binary. Decoders never panic on any input and return
// errors of kind mqerr.Corrupt; decoded byte slices alias the input.
package record

import "fmt"

// Pos is a byte position in the CommitLog. Positions start at 0 and only grow; a record is named
// by the position of its first header byte.
type Pos int64

// Epoch numbers the terms of a log's writers; it only grows. High 16 bits: cluster generation.
type Epoch uint64

// TopicID names a topic. The controller gives it and never uses it twice.
type TopicID uint32

// GroupID names a consumer group. The controller gives it and never uses it twice.
type GroupID uint32

// QueueID counts the queues of a topic within one broker group, from 0.
type QueueID int32

// QueueOffset counts the messages of a queue from 0, densely.
type QueueOffset int64

// ClientNum is a client's number in this log, defined at first use (PopCk.ClientName), 0 for none.
type ClientNum uint32

// Type is the kind of a record. Numbers are part of the file format: append only.
type Type uint8

// Types of records.
const (
	TypePad        Type = 1  // fills the rest of a segment
	TypeMsg        Type = 2  // a message, stored once
	TypePopCk      Type = 3  // a lease: messages handed out to a group
	TypePopAck     Type = 4  // messages done for a group
	TypePopChange  Type = 5  // new deadline of leased messages
	TypeDeliver    Type = 6  // delayed or committed messages become visible
	TypeTxnEnd     Type = 7  // verdict of a half message
	TypeTxnCheck   Type = 8  // a check of a half message was sent
	TypeRecall     Type = 9  // a delayed message will never be delivered
	TypeDead       Type = 10 // a message moved to a dead-letter topic
	TypeOffset     Type = 11 // pull and reset positions
	TypeMeta       Type = 12 // topic or group created, changed, deleted
	TypeEpoch      Type = 13 // a new leader begins
	TypeMove       Type = 14 // a message carried forward out of a dying segment
	TypeSnapshot   Type = 15 // base state of every view, in chunks
	TypeSessionEnd Type = 16 // the leases of one client session end
	TypeSkip       Type = 17 // offsets that a group's filter let pass
	TypeTrim       Type = 18 // the log is about to begin later: queues give up what lies before
	numTypes            = 19
)

var typeNames = [numTypes]string{
	"0", "PAD", "MSG", "POP_CK", "POP_ACK", "POP_CHANGE", "DELIVER", "TXN_END", "TXN_CHECK", "RECALL",
	"DEAD", "OFFSET", "META", "EPOCH", "MOVE", "SNAPSHOT", "SESSION_END", "SKIP", "TRIM",
}

// String is the name of the type as in docs/format/record.md.
func (t Type) String() string {
	if t < numTypes {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Version is the layout version written into every header. A reader refuses a record with a newer
// version and names the release that is needed.
const Version = 1

// Header flags.
const (
	// FlagMore says that the next record (pads apart) belongs to the same batch: after a crash the
	// records of an incomplete batch at the tail are cut as one.
	FlagMore uint16 = 1 << 0
)

// Header is the head of every record, HeaderSize bytes:
//
//	 0  2  magic    0x4750 ("PG")
//	 2  1  version
//	 3  1  type
//	 4  4  size     bytes of the record, header included, a multiple of 8
//	 8  4  crc      CRC32C over the whole record with this field zero; of a Pad over the header only
//	12  2  flags
//	14  2  tail     zero bytes at the end that do not belong to the body
//	16  8  pos      the record's own position in the log
//	24  8  epoch
//	32  8  time     store time, ms since 1970, never goes back within a log
//
// Magic, version, size, crc and pos stay where they are in every version, so that a newer record can
// be told from damage.
type Header struct {
	Type    Type
	Version uint8
	Flags   uint16
	Size    uint32 // total, header included; a multiple of Align
	Tail    uint16 // how many of the last bytes are zero and not of the body
	CRC     uint32
	Pos     Pos
	Epoch   Epoch
	Time    int64 // ms since 1970
}

// HeaderSize is the length of Header on disk in bytes.
const HeaderSize = 40

// Where fields of a header stand, in any version.
const (
	SizeOffset = 4
	PosOffset  = 16
)

// Align is the alignment of records in bytes.
const Align = 8

// Record is one record of the log.
type Record struct {
	Header
	Body []byte // without the zero bytes at its end
}

// End is the position of the next record.
func (h *Header) End() Pos { return h.Pos + Pos(h.Size) }
