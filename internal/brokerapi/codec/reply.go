package codec

import (
	"strings"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// textMax bounds the text of an error on the wire, in bytes.
const textMax = 1024

// Error encodes a failure: kind u8, text. An error without a kind is Internal.
func (e *Encoder) Error(err error) {
	text := err.Error()
	if len(text) > textMax {
		text = strings.ToValidUTF8(text[:textMax], "")
	}
	e.byte(byte(mqerr.KindOf(err)))
	e.text(text)
}

// DecodeError decodes a failure. A kind of a newer release, and bytes that cannot be decoded, become
// Internal.
func DecodeError(b []byte) *mqerr.Error {
	d := decoder{b: b}
	failure := d.error()
	if err := d.end("error"); err != nil {
		return mqerr.New(mqerr.Internal, "the broker refused the request with an %w", err)
	}
	return failure
}

func (d *decoder) error() *mqerr.Error {
	kind := mqerr.Kind(d.byte())
	if int(kind) >= len(mqerr.Kinds()) {
		kind = mqerr.Internal
	}
	return &mqerr.Error{Kind: kind, Text: d.text()}
}

// SendReply encodes a SendReply: count, and for each message queue, offset, position, store time,
// duplicate u8, and of a duplicate its delivery time.
func (e *Encoder) SendReply(r *brokerapi.SendReply) {
	e.grow(4+len(r.Results)*24, 0)
	e.uint(uint64(len(r.Results)))
	for i := range r.Results {
		s := &r.Results[i]
		e.int(int64(s.Queue))
		e.int(int64(s.Offset))
		e.int(int64(s.Pos))
		e.int(s.StoreTime)
		e.bool(s.Duplicate)
		if s.Duplicate {
			e.int(s.DeliverAt)
		}
	}
}

// DecodeSendReply decodes a SendReply to a request with n messages.
func DecodeSendReply(b []byte, n int) (*brokerapi.SendReply, error) {
	d := decoder{b: b}
	r := &brokerapi.SendReply{Results: make([]brokerapi.SendResult, d.count(5))}
	for i := range r.Results {
		r.Results[i] = brokerapi.SendResult{
			Queue: brokerapi.QueueID(d.int32()), Offset: brokerapi.QueueOffset(d.int()),
			Pos: brokerapi.LogPos(d.int()), StoreTime: d.int(), Duplicate: d.bool(),
		}
		if r.Results[i].Duplicate {
			r.Results[i].DeliverAt = d.int()
		}
	}
	if err := d.end("send reply"); err != nil {
		return nil, err
	}
	return r, answers(len(r.Results), n)
}

func answers(got, want int) error {
	if got != want {
		return mqerr.New(mqerr.Invalid, "a reply with %d results for %d questions", got, want)
	}
	return nil
}

// deliveryMin is the least a delivery takes.
const deliveryMin = 11

// PopReply encodes a PopReply: 1 for more, 2 for full u8, count, and for each message queue, offset, lease, epoch,
// attempt, type u8, store time, flags u8, optional fields, then user, sys and body with their lengths.
func (e *Encoder) PopReply(r *brokerapi.PopReply) error {
	if err := listed(len(r.Messages), "deliveries"); err != nil {
		return err
	}
	e.grow(8+len(r.Messages)*192, 3*len(r.Messages))
	e.byte(popFlags(r))
	e.deliveries(r.Messages)
	return nil
}

const (
	popMore       = 1 << 0
	popFull       = 1 << 1
	popFlagsKnown = popMore | popFull
)

func popFlags(r *brokerapi.PopReply) (flags byte) {
	if r.More {
		flags |= popMore
	}
	if r.Full {
		flags |= popFull
	}
	return flags
}

func (e *Encoder) deliveries(all []brokerapi.Delivery) {
	e.uint(uint64(len(all)))
	for i := range all {
		e.delivery(&all[i])
	}
}

func (e *Encoder) delivery(m *brokerapi.Delivery) {
	e.int(int64(m.Queue))
	e.int(int64(m.Offset))
	e.int(int64(m.Lease))
	e.uint(uint64(m.Epoch))
	e.int(int64(m.Attempt))
	e.byte(byte(m.Type))
	e.int(m.StoreTime)
	e.optional(0, 0, m.DeliverAt, &m.Digest, false)
	e.bytes(m.User)
	e.bytes(m.Sys)
	e.bytes(m.Body)
}

func (e *Encoder) bool(v bool) {
	if v {
		e.byte(1)
		return
	}
	e.byte(0)
}

// DecodePopReply decodes the messages of a PopReply; their byte slices are parts of b.
func DecodePopReply(b []byte) (messages []brokerapi.Delivery, more, full bool, err error) {
	d := decoder{b: b}
	flags := d.byte()
	if flags&^popFlagsKnown != 0 {
		d.fail()
	}
	messages = d.deliveries()
	if err := d.end("pop reply"); err != nil {
		return nil, false, false, err
	}
	return messages, flags&popMore != 0, flags&popFull != 0, nil
}

func (d *decoder) deliveries() []brokerapi.Delivery {
	n := d.count(deliveryMin)
	if n == 0 {
		return nil
	}
	messages := make([]brokerapi.Delivery, n)
	for i := range messages {
		if d.delivery(&messages[i]); d.bad {
			break
		}
	}
	return messages
}

func (d *decoder) delivery(m *brokerapi.Delivery) {
	m.Queue = brokerapi.QueueID(d.int32())
	m.Offset = brokerapi.QueueOffset(d.int())
	m.Lease = brokerapi.LogPos(d.int())
	m.Epoch = brokerapi.Epoch(d.uint())
	m.Attempt = d.int32()
	m.Type = brokerapi.MessageType(d.byte())
	m.StoreTime = d.int()
	var tag, group uint64
	if d.optional(&tag, &group, &m.DeliverAt, &m.Digest) {
		d.fail()
	}
	m.User = d.bytes()
	m.Sys = d.bytes()
	m.Body = d.bytes()
}

// Errors encodes an AckReply or ChangeReply: count, how many failed, and for each of those its index
// and its error.
func (e *Encoder) Errors(errs []error) {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	e.grow(8+failed*64, 0)
	e.uint(uint64(len(errs)))
	e.uint(uint64(failed))
	for i, err := range errs {
		if err != nil {
			e.uint(uint64(i))
			e.Error(err)
		}
	}
}

// DecodeErrors decodes the reply to a request with n handles. Equal errors are shared.
func DecodeErrors(b []byte, n int) ([]error, error) {
	d := decoder{b: b}
	if got := d.uint(); !d.bad && got != uint64(n) {
		return nil, answers(int(min(got, ListMax+1)), n)
	}
	errs := make([]error, n)
	var last *mqerr.Error
	for range d.count(3) {
		i := d.uint()
		failure := d.error()
		if d.bad || i >= uint64(n) {
			d.fail()
			break
		}
		if last == nil || last.Kind != failure.Kind || last.Text != failure.Text {
			last = failure
		}
		errs[i] = last
	}
	return errs, d.end("reply")
}

// groupQueueMin and topicQueueMin are the least such an entry takes.
const (
	groupQueueMin = 14
	topicQueueMin = 4
)

// GroupQueues encodes the reply to DescribeGroup.
func (e *Encoder) GroupQueues(qs []brokerapi.GroupQueue) error {
	if err := listed(len(qs), "queues"); err != nil {
		return err
	}
	e.grow(4+len(qs)*32, 0)
	e.uint(uint64(len(qs)))
	for i := range qs {
		q := &qs[i]
		for _, v := range [...]int64{
			int64(q.Queue), int64(q.Min), int64(q.Max), int64(q.Floor), int64(q.Next),
			q.InFlight, q.Ready, q.Waiting, q.OldestMS, q.OverMax, q.Lost, q.MaxInFlight, q.MaxInFlightClient,
		} {
			e.int(v)
		}
		e.bool(q.Used)
	}
	return nil
}

// DecodeGroupQueues decodes the reply to DescribeGroup.
func DecodeGroupQueues(b []byte) ([]brokerapi.GroupQueue, error) {
	d := decoder{b: b}
	var qs []brokerapi.GroupQueue
	for range d.count(groupQueueMin) {
		qs = append(qs, brokerapi.GroupQueue{
			Queue: brokerapi.QueueID(d.int32()), Min: brokerapi.QueueOffset(d.int()), Max: brokerapi.QueueOffset(d.int()),
			Floor: brokerapi.QueueOffset(d.int()), Next: brokerapi.QueueOffset(d.int()),
			InFlight: d.int(), Ready: d.int(), Waiting: d.int(), OldestMS: d.int(), OverMax: d.int(), Lost: d.int(),
			MaxInFlight: d.int(), MaxInFlightClient: d.int(), Used: d.bool(),
		})
	}
	return qs, d.end("description of a group")
}

// TopicQueues encodes the reply to DescribeTopic.
func (e *Encoder) TopicQueues(qs []brokerapi.TopicQueue) error {
	if err := listed(len(qs), "queues"); err != nil {
		return err
	}
	e.grow(4+len(qs)*16, 0)
	e.uint(uint64(len(qs)))
	for i := range qs {
		q := &qs[i]
		e.int(int64(q.Queue))
		e.int(int64(q.Min))
		e.int(int64(q.Max))
		e.int(q.LastMS)
	}
	return nil
}

// DecodeTopicQueues decodes the reply to DescribeTopic.
func DecodeTopicQueues(b []byte) ([]brokerapi.TopicQueue, error) {
	d := decoder{b: b}
	var qs []brokerapi.TopicQueue
	for range d.count(topicQueueMin) {
		qs = append(qs, brokerapi.TopicQueue{
			Queue: brokerapi.QueueID(d.int32()), Min: brokerapi.QueueOffset(d.int()), Max: brokerapi.QueueOffset(d.int()), LastMS: d.int(),
		})
	}
	return qs, d.end("description of a topic")
}

// ReadyMax is the most that one Ready takes in an event, in bytes.
const ReadyMax = 5 + 5 + 10 + 10

// NoticeMax is the most that a Notice takes in an event, in bytes.
const NoticeMax = 3

// AppendNotice appends a Notice to the payload of an event: a Ready of topic 0, which does not exist.
func AppendNotice(dst []byte, n brokerapi.Notice) []byte {
	e := Encoder{meta: dst}
	e.uint(0)
	e.uint(0)
	e.uint(uint64(n))
	return e.meta
}

// AppendReady appends one Ready to the payload of an event, which is nothing but these and notices.
func AppendReady(dst []byte, r brokerapi.Ready) []byte {
	e := Encoder{meta: dst}
	e.uint(uint64(r.Topic))
	e.uint(uint64(r.Group))
	e.uint(uint64(max(r.Count, 1)))
	e.uint(r.Client)
	return e.meta
}

// noticeKnown is what this release knows of a Notice; the rest is for later ones.
const noticeKnown = int(brokerapi.NoticeChecks | brokerapi.NoticeLite)

// DecodeReady decodes the payload of an event.
func DecodeReady(b []byte) (all []brokerapi.Ready, notice brokerapi.Notice, err error) {
	d := decoder{b: b}
	for len(d.b) > 0 {
		r := brokerapi.Ready{Topic: d.topic(), Group: d.group(), Count: int(d.uintMax(1<<62 - 1))}
		if r.Count == 0 {
			d.fail()
			break
		}
		if r.Topic == 0 {
			notice |= brokerapi.Notice(r.Count & noticeKnown)
			continue
		}
		r.Client = d.uint()
		all = append(all, r)
	}
	return all, notice, d.end("event")
}
