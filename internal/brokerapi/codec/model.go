package codec

import (
	"bytes"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
)

// EndTxn encodes an EndTxnRequest: head, topic, message id, commit u8, source u8.
func (e *Encoder) EndTxn(r *brokerapi.EndTxnRequest) {
	e.head(&r.Head)
	e.uint(uint64(r.Topic))
	e.bytes(r.ID)
	e.bool(r.Commit)
	e.byte(byte(r.Source))
}

// DecodeEndTxn decodes an EndTxnRequest. Nothing of it refers to b.
func DecodeEndTxn(b []byte) (*brokerapi.EndTxnRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.EndTxnRequest{}
	d.head(&r.Head)
	r.Topic, r.ID, r.Commit, r.Source = d.topic(), bytes.Clone(d.bytes()), d.bool(), brokerapi.TxnSource(d.byte())
	return r, d.end("end-transaction request")
}

// Checks encodes a ChecksRequest: head, max.
func (e *Encoder) Checks(r *brokerapi.ChecksRequest) {
	e.head(&r.Head)
	e.int(int64(r.Max))
}

// DecodeChecks decodes a ChecksRequest. Nothing of it refers to b.
func DecodeChecks(b []byte) (*brokerapi.ChecksRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.ChecksRequest{}
	d.head(&r.Head)
	r.Max = int(d.int())
	return r, d.end("checks request")
}

// checkMin is the least a check takes.
const checkMin = deliveryMin + 3

// ChecksReply encodes a ChecksReply: more u8, count, and for each check topic, position of the half
// message, checks so far, the message as a delivery.
func (e *Encoder) ChecksReply(r *brokerapi.ChecksReply) error {
	if err := listed(len(r.Checks), "checks"); err != nil {
		return err
	}
	e.grow(8+len(r.Checks)*192, 3*len(r.Checks))
	e.bool(r.More)
	e.uint(uint64(len(r.Checks)))
	for i := range r.Checks {
		c := &r.Checks[i]
		e.uint(uint64(c.Topic))
		e.int(int64(c.Half))
		e.int(int64(c.Checks))
		e.delivery(&c.Message)
	}
	return nil
}

// DecodeChecksReply decodes the checks of a ChecksReply; their byte slices are parts of b.
func DecodeChecksReply(b []byte) (checks []brokerapi.Check, more bool, err error) {
	d := decoder{b: b}
	more = d.bool()
	if n := d.count(checkMin); n > 0 {
		checks = make([]brokerapi.Check, n)
	}
	for i := range checks {
		c := &checks[i]
		c.Topic, c.Half, c.Checks = d.topic(), brokerapi.LogPos(d.int()), int(d.int())
		if d.delivery(&c.Message); d.bad {
			break
		}
	}
	if err := d.end("checks reply"); err != nil {
		return nil, false, err
	}
	return checks, more, nil
}

// Recall encodes a RecallRequest: head, topic, position of the message, delivery time.
func (e *Encoder) Recall(r *brokerapi.RecallRequest) {
	e.head(&r.Head)
	e.uint(uint64(r.Topic))
	e.int(int64(r.Ref))
	e.int(r.DeliverAt)
}

// DecodeRecall decodes a RecallRequest. Nothing of it refers to b.
func DecodeRecall(b []byte) (*brokerapi.RecallRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.RecallRequest{}
	d.head(&r.Head)
	r.Topic, r.Ref, r.DeliverAt = d.topic(), brokerapi.LogPos(d.int()), d.int()
	return r, d.end("recall request")
}

// RecallReply encodes a RecallReply: message id.
func (e *Encoder) RecallReply(r *brokerapi.RecallReply) { e.bytes(r.ID) }

// DecodeRecallReply decodes a RecallReply; its id is part of b.
func DecodeRecallReply(b []byte) (*brokerapi.RecallReply, error) {
	d := decoder{b: b}
	r := &brokerapi.RecallReply{ID: d.bytes()}
	return r, d.end("recall reply")
}

// Forward encodes a ForwardRequest: head, topic, group, handles.
func (e *Encoder) Forward(r *brokerapi.ForwardRequest) error {
	return e.Ack(&brokerapi.AckRequest{Head: r.Head, Topic: r.Topic, Group: r.Group, Handles: r.Handles})
}

// DecodeForward decodes a ForwardRequest. Nothing of it refers to b.
func DecodeForward(b []byte) (*brokerapi.ForwardRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.ForwardRequest{}
	d.head(&r.Head)
	r.Topic, r.Group = d.topic(), d.group()
	r.Handles = d.handles()
	return r, d.end("forward request")
}

// Pull encodes a PullRequest: head, topic, group, queue, offset, max, max bytes, wait in nanoseconds,
// filter.
func (e *Encoder) Pull(r *brokerapi.PullRequest) error {
	if err := listed(len(r.Filter.Tags), "tags"); err != nil {
		return err
	}
	e.head(&r.Head)
	e.uint(uint64(r.Topic))
	e.uint(uint64(r.Group))
	e.int(int64(r.Queue))
	e.int(int64(r.Offset))
	e.int(int64(r.Max))
	e.int(int64(r.MaxBytes))
	e.int(int64(r.Wait))
	e.filter(&r.Filter)
	return nil
}

// DecodePull decodes a PullRequest. Nothing of it refers to b.
func DecodePull(b []byte) (*brokerapi.PullRequest, error) {
	d := decoder{b: b}
	r := &brokerapi.PullRequest{}
	d.head(&r.Head)
	r.Topic, r.Group = d.topic(), d.group()
	r.Queue, r.Offset = brokerapi.QueueID(d.int32()), brokerapi.QueueOffset(d.int())
	r.Max, r.MaxBytes, r.Wait = int(d.int()), int(d.int()), time.Duration(d.int())
	d.filter(&r.Filter)
	return r, d.end("pull request")
}

// PullReply encodes a PullReply: next, min, max, and the deliveries as in a PopReply.
func (e *Encoder) PullReply(r *brokerapi.PullReply) error {
	if err := listed(len(r.Messages), "deliveries"); err != nil {
		return err
	}
	e.grow(32+len(r.Messages)*192, 3*len(r.Messages))
	e.int(int64(r.Next))
	e.int(int64(r.Min))
	e.int(int64(r.Max))
	e.deliveries(r.Messages)
	return nil
}

// DecodePullReply decodes a PullReply, which has nothing to release; its byte slices are parts of b.
func DecodePullReply(b []byte) (*brokerapi.PullReply, error) {
	d := decoder{b: b}
	r := &brokerapi.PullReply{}
	r.Next, r.Min, r.Max = brokerapi.QueueOffset(d.int()), brokerapi.QueueOffset(d.int()), brokerapi.QueueOffset(d.int())
	r.Messages = d.deliveries()
	return r, d.end("pull reply")
}
