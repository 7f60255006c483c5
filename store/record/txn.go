package record

import "math"

// TxnSource says who gave the verdict of a half message; numbers as the public TransactionSource.
type TxnSource uint8

// Sources of verdicts.
const (
	TxnByClient TxnSource = 1 // the producer, by itself
	TxnByCheck  TxnSource = 2 // the producer, asked
	TxnByBroker TxnSource = 3 // the last check had no answer
)

// TxnEnd is the body of a TypeTxnEnd record: verdicts of half messages of a topic. Committed ones become
// visible by this record, rolled back ones never will.
type TxnEnd struct {
	Topic      TopicID
	Source     TxnSource
	Committed  []TxnPlace
	RolledBack []Pos // records of the half messages
}

// TxnPlace is where a committed message stands. All else that a consume-queue entry needs is known of the
// half message.
type TxnPlace struct {
	Queue  QueueID
	Offset QueueOffset
	Half   Pos // record of the half message
}

// TxnCheck is the body of a TypeTxnCheck record: checks of half messages of a topic were sent.
type TxnCheck struct {
	Topic TopicID
	Items []TxnChecked
}

// TxnChecked is one message of a TxnCheck.
type TxnChecked struct {
	Half   Pos    // record of the half message
	Checks uint32 // sent so far, this one included
	Next   int64  // the next check is not before, ms since 1970
}

// put says the layout of a TxnEnd:
//
//	uvarint topic, byte source of the verdict
//	committed messages: uvarint number, each: uvarint queue, varint offset and varint position of the half
//	message, both less those of the one before (0 at first)
//	rolled back messages: uvarint number, varint position less the one before (0 at first)
func (e *TxnEnd) put(s *sink) {
	s.uvarint(uint64(e.Topic))
	s.u8(uint8(e.Source))
	s.txnPlaces(e.Committed)
	s.refs(e.RolledBack)
}

func (s *sink) txnPlaces(items []TxnPlace) {
	s.count(len(items))
	offset, half := QueueOffset(0), Pos(0)
	for _, p := range items {
		s.num(int64(p.Queue))
		s.varint(int64(p.Offset - offset))
		s.varint(int64(p.Half - half))
		offset, half = p.Offset, p.Half
	}
}

func (s *source) txnPlaces() (items []TxnPlace) {
	offset, half := int64(0), int64(0)
	for range s.count(3) {
		queue := s.queue()
		offset += s.varint()
		half += s.varint()
		if offset < 0 || half < 0 {
			s.fail()
			break
		}
		items = append(items, TxnPlace{Queue: queue, Offset: QueueOffset(offset), Half: Pos(half)})
	}
	return items
}

// TxnEndSize is the length of e as a body.
func TxnEndSize(e *TxnEnd) int {
	var s sink
	e.put(&s)
	return s.n
}

// PutTxnEnd writes e to dst, TxnEndSize bytes long.
func PutTxnEnd(dst []byte, e *TxnEnd) {
	s := start(dst)
	e.put(&s)
	s.end(dst)
}

// DecodeTxnEnd reads the body of a TypeTxnEnd record.
func DecodeTxnEnd(body []byte) (e TxnEnd, err error) {
	s := source{b: body}
	e.Topic, e.Source, e.Committed, e.RolledBack = TopicID(s.id32()), TxnSource(s.u8()), s.txnPlaces(), s.refs()
	return e, s.end(TypeTxnEnd)
}

// put says the layout of a TxnCheck:
//
//	uvarint topic, uvarint number of items, each:
//	  varint position of the half message less that of the item before (0 at first)
//	  uvarint checks so far, uvarint next check
func (c *TxnCheck) put(s *sink) {
	s.uvarint(uint64(c.Topic))
	s.count(len(c.Items))
	ref := Pos(0)
	for _, it := range c.Items {
		s.varint(int64(it.Half - ref))
		s.uvarint(uint64(it.Checks))
		s.num(it.Next)
		ref = it.Half
	}
}

// TxnCheckSize is the length of c as a body.
func TxnCheckSize(c *TxnCheck) int {
	var s sink
	c.put(&s)
	return s.n
}

// PutTxnCheck writes c to dst, TxnCheckSize bytes long.
func PutTxnCheck(dst []byte, c *TxnCheck) {
	s := start(dst)
	c.put(&s)
	s.end(dst)
}

// DecodeTxnCheck reads the body of a TypeTxnCheck record.
func DecodeTxnCheck(body []byte) (c TxnCheck, err error) {
	s := source{b: body}
	c.Topic = TopicID(s.id32())
	ref := int64(0)
	for range s.count(3) {
		if ref += s.varint(); ref < 0 {
			s.fail()
			break
		}
		c.Items = append(c.Items, TxnChecked{Half: Pos(ref), Checks: s.id32(), Next: s.num(math.MaxInt64)})
	}
	return c, s.end(TypeTxnCheck)
}
