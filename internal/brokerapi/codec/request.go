package codec

import (
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// The head of every request: user text, epoch uvarint.
func (e *Encoder) head(h *brokerapi.Head) {
	e.text(h.Principal.User)
	e.uint(uint64(h.Epoch))
}

func (d *decoder) head(h *brokerapi.Head) {
	h.Principal.User = d.text()
	h.Epoch = brokerapi.Epoch(d.uint())
}

// Flags of a message say which optional fields follow, in this order.
const (
	hasTag     = 1 << 0 // 8 bytes
	hasGroup   = 1 << 1 // 8 bytes
	hasTime    = 1 << 2 // varint
	hasDigest  = 1 << 3 // 16 bytes
	hasMore    = 1 << 4 // of a message to store: check after varint (ns), priority varint, lite topic text
	flagsKnown = hasTag | hasGroup | hasTime | hasDigest | hasMore
)

// messageMin is the least a message takes: queue, type, flags and four lengths.
const messageMin = 7

// Send encodes a SendRequest: head, topic, layout, age in nanoseconds, count, and for each message
//
//	queue varint, type u8, flags u8, optional fields, then id, user, sys and body with their lengths
func (e *Encoder) Send(r *brokerapi.SendRequest) error {
	if err := listed(len(r.Messages), "messages"); err != nil {
		return err
	}
	e.grow(64+len(r.Messages)*192, 3*len(r.Messages))
	e.head(&r.Head)
	e.uint(uint64(r.Topic))
	e.uint(r.Layout)
	e.int(int64(r.Age))
	e.uint(uint64(len(r.Messages)))
	for i := range r.Messages {
		m := &r.Messages[i]
		e.int(int64(m.Queue))
		e.byte(byte(m.Type))
		more := m.CheckAfter != 0 || m.Priority != 0 || m.Lite != ""
		e.optional(m.TagHash, m.GroupHash, m.DeliverAt, &m.Digest, more)
		if more {
			e.int(int64(m.CheckAfter))
			e.int(int64(m.Priority))
			e.text(m.Lite)
		}
		e.bytes(m.ID)
		e.bytes(m.User)
		e.bytes(m.Sys)
		e.bytes(m.Body)
	}
	return nil
}

func (e *Encoder) optional(tag, group uint64, at int64, digest *[16]byte, more bool) {
	flags := byte(0)
	if more {
		flags |= hasMore
	}
	if tag != 0 {
		flags |= hasTag
	}
	if group != 0 {
		flags |= hasGroup
	}
	if at != 0 {
		flags |= hasTime
	}
	if *digest != [16]byte{} {
		flags |= hasDigest
	}
	e.byte(flags)
	if tag != 0 {
		e.fixed64(tag)
	}
	if group != 0 {
		e.fixed64(group)
	}
	if at != 0 {
		e.int(at)
	}
	if flags&hasDigest != 0 {
		e.meta = append(e.meta, digest[:]...)
	}
}

// optional tells whether hasMore was flagged.
func (d *decoder) optional(tag, group *uint64, at *int64, digest *[16]byte) (more bool) {
	flags := d.byte()
	if flags&^byte(flagsKnown) != 0 {
		d.fail()
		return false
	}
	if flags&hasTag != 0 {
		*tag = d.fixed64()
	}
	if flags&hasGroup != 0 {
		*group = d.fixed64()
	}
	if flags&hasTime != 0 {
		*at = d.int()
	}
	if flags&hasDigest != 0 {
		copy(digest[:], d.take(16))
	}
	return flags&hasMore != 0
}

// DecodeSend decodes a SendRequest; its byte slices are parts of b.
func DecodeSend(b []byte) (*brokerapi.SendRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.SendRequest{}
	d.head(&r.Head)
	r.Topic = d.topic()
	r.Layout = d.uint()
	r.Age = time.Duration(d.int())
	r.Messages = make([]brokerapi.Message, d.count(messageMin))
	for i := range r.Messages {
		m := &r.Messages[i]
		m.Queue = brokerapi.QueueID(d.int32())
		m.Type = brokerapi.MessageType(d.byte())
		if d.optional(&m.TagHash, &m.GroupHash, &m.DeliverAt, &m.Digest) {
			m.CheckAfter = time.Duration(d.int())
			m.Priority = d.int32()
			m.Lite = d.text()
		}
		m.ID = d.bytes()
		m.User = d.bytes()
		m.Sys = d.bytes()
		m.Body = d.bytes()
		if d.bad {
			break
		}
	}
	return r, d.end("send request")
}

func (d *decoder) topic() brokerapi.TopicID { return brokerapi.TopicID(d.uintMax(1<<32 - 1)) }

func (d *decoder) group() brokerapi.GroupID { return brokerapi.GroupID(d.uintMax(1<<32 - 1)) }

// Flags of a pop.
const (
	popSession = 1 << 0
	popArm     = 1 << 1
)

// Pop encodes a PopRequest: head, topic, group, flags u8, client, max, max bytes, invisible time in
// nanoseconds, attempt id, filter.
func (e *Encoder) Pop(r *brokerapi.PopRequest) error {
	if err := listed(len(r.Filter.Tags), "tags"); err != nil {
		return err
	}
	e.grow(64+len(r.Client)+len(r.AttemptID), 0)
	e.head(&r.Head)
	e.uint(uint64(r.Topic))
	e.uint(uint64(r.Group))
	flags := byte(0)
	if r.Session {
		flags |= popSession
	}
	if r.Arm {
		flags |= popArm
	}
	e.byte(flags)
	e.text(r.Client)
	e.int(int64(r.Max))
	e.int(int64(r.MaxBytes))
	e.int(int64(r.Invisible))
	e.text(r.AttemptID)
	e.filter(&r.Filter)
	return nil
}

func (e *Encoder) filter(f *brokerapi.Filter) {
	e.byte(byte(f.Kind))
	e.uint(uint64(len(f.Tags)))
	for _, t := range f.Tags {
		e.text(t)
	}
	if f.Kind == brokerapi.FilterSQL {
		e.text(f.SQL)
	}
}

func (d *decoder) filter(f *brokerapi.Filter) {
	f.Kind = brokerapi.FilterKind(d.byte())
	if n := d.count(1); n > 0 {
		f.Tags = make([]string, n)
	}
	for i := range f.Tags {
		f.Tags[i] = d.text()
	}
	if f.Kind == brokerapi.FilterSQL {
		f.SQL = d.text()
	}
}

// DecodePop decodes a PopRequest. Nothing of it refers to b.
func DecodePop(b []byte) (*brokerapi.PopRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.PopRequest{}
	d.head(&r.Head)
	r.Topic, r.Group = d.topic(), d.group()
	flags := d.byte()
	if flags&^byte(popSession|popArm) != 0 {
		d.fail()
	}
	r.Session, r.Arm = flags&popSession != 0, flags&popArm != 0
	r.Client = d.text()
	r.Max, r.MaxBytes = int(d.int()), int(d.int())
	r.Invisible = time.Duration(d.int())
	r.AttemptID = d.text()
	d.filter(&r.Filter)
	return r, d.end("pop request")
}

// handleMin is the least a handle takes: queue, offset, lease, epoch.
const handleMin = 4

func (e *Encoder) handles(hs []brokerapi.Handle) {
	e.uint(uint64(len(hs)))
	for i := range hs {
		h := &hs[i]
		e.int(int64(h.Queue))
		e.int(int64(h.Offset))
		e.int(int64(h.Lease))
		e.uint(uint64(h.Epoch))
	}
}

func (d *decoder) handles() []brokerapi.Handle {
	hs := make([]brokerapi.Handle, d.count(handleMin))
	for i := range hs {
		hs[i] = brokerapi.Handle{
			Queue: brokerapi.QueueID(d.int32()), Offset: brokerapi.QueueOffset(d.int()),
			Lease: brokerapi.LogPos(d.int()), Epoch: brokerapi.Epoch(d.uint()),
		}
	}
	return hs
}

// Ack encodes an AckRequest: head, topic, group, handles.
func (e *Encoder) Ack(r *brokerapi.AckRequest) error {
	if err := listed(len(r.Handles), "handles"); err != nil {
		return err
	}
	e.grow(48+len(r.Handles)*20, 0)
	e.head(&r.Head)
	e.uint(uint64(r.Topic))
	e.uint(uint64(r.Group))
	e.handles(r.Handles)
	return nil
}

// DecodeAck decodes an AckRequest. Nothing of it refers to b.
func DecodeAck(b []byte) (*brokerapi.AckRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.AckRequest{}
	d.head(&r.Head)
	r.Topic, r.Group = d.topic(), d.group()
	r.Handles = d.handles()
	return r, d.end("ack request")
}

// Change encodes a ChangeRequest: head, topic, group, invisible time in nanoseconds, mode u8, handles.
func (e *Encoder) Change(r *brokerapi.ChangeRequest) error {
	if err := listed(len(r.Handles), "handles"); err != nil {
		return err
	}
	e.grow(60+len(r.Handles)*20, 0)
	e.head(&r.Head)
	e.uint(uint64(r.Topic))
	e.uint(uint64(r.Group))
	e.int(int64(r.Invisible))
	e.byte(byte(r.Mode))
	e.handles(r.Handles)
	return nil
}

// DecodeChange decodes a ChangeRequest. Nothing of it refers to b.
func DecodeChange(b []byte) (*brokerapi.ChangeRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.ChangeRequest{}
	d.head(&r.Head)
	r.Topic, r.Group = d.topic(), d.group()
	r.Invisible = time.Duration(d.int())
	r.Mode = brokerapi.ChangeMode(d.byte())
	r.Handles = d.handles()
	return r, d.end("change request")
}

// Alive encodes a report of living clients: their ids.
func (e *Encoder) Alive(clients []string) error {
	if err := listed(len(clients), "clients"); err != nil {
		return err
	}
	e.grow(8+len(clients)*48, 0)
	e.uint(uint64(len(clients)))
	for _, c := range clients {
		e.text(c)
	}
	return nil
}

// DecodeAlive decodes a report of living clients. Nothing of it refers to b.
func DecodeAlive(b []byte) ([]string, error) {
	d := decoder{b: b}
	clients := make([]string, d.count(1))
	for i := range clients {
		clients[i] = d.text()
	}
	return clients, d.end("alive request")
}

// EndSession encodes the end of a client's session: its id.
func (e *Encoder) EndSession(client string) { e.text(client) }

// DecodeEndSession decodes the end of a client's session.
func DecodeEndSession(b []byte) (string, error) {
	d := decoder{b: b}
	client := d.text()
	return client, d.end("end-session request")
}

// Describe encodes a question about a group on a topic, or with group 0 about a topic.
func (e *Encoder) Describe(topic brokerapi.TopicID, group brokerapi.GroupID) {
	e.uint(uint64(topic))
	e.uint(uint64(group))
}

// DecodeDescribe decodes a question about a topic or a group.
func DecodeDescribe(b []byte) (brokerapi.TopicID, brokerapi.GroupID, error) {
	d := decoder{b: b}
	topic, group := d.topic(), d.group()
	return topic, group, d.end("describe request")
}
