package codec

import (
	"bytes"
	"testing"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// forms has every decoder with the encoder that inverts it: what was decoded is encoded again.
var forms = map[string]func(b []byte) (*Encoder, error){
	"send": func(b []byte) (*Encoder, error) {
		r, err := DecodeSend(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.Send(r) })
	},
	"pop": func(b []byte) (*Encoder, error) {
		r, err := DecodePop(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.Pop(r) })
	},
	"ack": func(b []byte) (*Encoder, error) {
		r, err := DecodeAck(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.Ack(r) })
	},
	"change": func(b []byte) (*Encoder, error) {
		r, err := DecodeChange(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.Change(r) })
	},
	"alive": func(b []byte) (*Encoder, error) {
		r, err := DecodeAlive(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.Alive(r) })
	},
	"end session": func(b []byte) (*Encoder, error) {
		r, err := DecodeEndSession(b)
		e := &Encoder{}
		return e, first(err, func() error { e.EndSession(r); return nil })
	},
	"describe": func(b []byte) (*Encoder, error) {
		topic, group, err := DecodeDescribe(b)
		e := &Encoder{}
		return e, first(err, func() error { e.Describe(topic, group); return nil })
	},
	"pop reply": func(b []byte) (*Encoder, error) {
		m, more, err := DecodePopReply(b)
		e := &Encoder{}
		return e, first(err, func() error {
			r := brokerapi.NewPopReply(m, nil)
			r.More = more
			return e.PopReply(r)
		})
	},
	"send reply": func(b []byte) (*Encoder, error) {
		d := decoder{b: b}
		r, err := DecodeSendReply(b, int(d.uintMax(ListMax)))
		e := &Encoder{}
		return e, first(err, func() error { e.SendReply(r); return nil })
	},
	"errors": func(b []byte) (*Encoder, error) {
		d := decoder{b: b}
		r, err := DecodeErrors(b, int(d.uintMax(ListMax)))
		e := &Encoder{}
		return e, first(err, func() error { e.Errors(r); return nil })
	},
	"group queues": func(b []byte) (*Encoder, error) {
		r, err := DecodeGroupQueues(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.GroupQueues(r) })
	},
	"topic queues": func(b []byte) (*Encoder, error) {
		r, err := DecodeTopicQueues(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.TopicQueues(r) })
	},
	"event": func(b []byte) (*Encoder, error) {
		all, err := DecodeReady(b)
		e := &Encoder{}
		return e, first(err, func() error {
			for _, r := range all {
				e.meta = AppendReady(e.meta, r)
			}
			return nil
		})
	},
}

func first(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

// FuzzDecode gives any bytes to every decoder: none panics, a refusal is of kind Invalid, and what
// was accepted means the same after another trip.
func FuzzDecode(f *testing.F) {
	seed := func(fill func(e *Encoder)) {
		var e Encoder
		fill(&e)
		f.Add(e.joined())
	}
	handles := []brokerapi.Handle{{Queue: 1, Offset: 2, Lease: 3, Epoch: 4}, {Queue: -1, Offset: 1 << 40}}
	seed(func(e *Encoder) {
		_ = e.Send(&brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{{TagHash: 1, GroupHash: 2, DeliverAt: 3, Digest: [16]byte{4}, ID: []byte("id"), Body: make([]byte, 300)}}})
	})
	seed(func(e *Encoder) {
		_ = e.Pop(&brokerapi.PopRequest{Topic: 1, Group: 2, Client: "c", Session: true, Arm: true, Filter: brokerapi.Filter{Kind: 1, Tags: []string{"a"}}})
	})
	seed(func(e *Encoder) { _ = e.Ack(&brokerapi.AckRequest{Topic: 1, Group: 2, Handles: handles}) })
	seed(func(e *Encoder) {
		_ = e.Change(&brokerapi.ChangeRequest{Topic: 1, Group: 2, Handles: handles, Mode: 1})
	})
	seed(func(e *Encoder) { _ = e.Alive([]string{"a", "b"}) })
	seed(func(e *Encoder) {
		_ = e.PopReply(brokerapi.NewPopReply([]brokerapi.Delivery{{Attempt: 1, DeliverAt: 2, Digest: [16]byte{1}, Body: []byte("x")}}, nil))
	})
	seed(func(e *Encoder) { e.SendReply(&brokerapi.SendReply{Results: make([]brokerapi.SendResult, 2)}) })
	seed(func(e *Encoder) { e.Errors([]error{nil, mqerr.New(mqerr.HandleInvalid, "x"), nil}) })
	seed(func(e *Encoder) { _ = e.GroupQueues(make([]brokerapi.GroupQueue, 2)) })
	seed(func(e *Encoder) { e.meta = AppendReady(nil, brokerapi.Ready{Topic: 1, Group: 2, Count: 3}) })
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = DecodeError(b)
		for name, form := range forms {
			e, err := form(b)
			if err != nil {
				if !mqerr.Is(err, mqerr.Invalid) {
					t.Fatalf("%s: error %v of kind %v", name, err, mqerr.KindOf(err))
				}
				continue
			}
			again, err := form(e.joined())
			if err != nil {
				t.Fatalf("%s: what was encoded is refused: %v", name, err)
			}
			if !bytes.Equal(e.joined(), again.joined()) {
				t.Fatalf("%s: %x became %x", name, e.joined(), again.joined())
			}
		}
	})
}
