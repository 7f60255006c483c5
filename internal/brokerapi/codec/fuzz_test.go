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
		m, more, full, err := DecodePopReply(b)
		e := &Encoder{}
		return e, first(err, func() error {
			r := brokerapi.NewPopReply(m, nil)
			r.More, r.Full = more, full
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
	"end txn": func(b []byte) (*Encoder, error) {
		r, err := DecodeEndTxn(b)
		e := &Encoder{}
		return e, first(err, func() error { e.EndTxn(r); return nil })
	},
	"checks": func(b []byte) (*Encoder, error) {
		r, err := DecodeChecks(b)
		e := &Encoder{}
		return e, first(err, func() error { e.Checks(r); return nil })
	},
	"checks reply": func(b []byte) (*Encoder, error) {
		c, more, err := DecodeChecksReply(b)
		e := &Encoder{}
		return e, first(err, func() error {
			r := brokerapi.NewChecksReply(c, nil)
			r.More = more
			return e.ChecksReply(r)
		})
	},
	"recall": func(b []byte) (*Encoder, error) {
		r, err := DecodeRecall(b)
		e := &Encoder{}
		return e, first(err, func() error { e.Recall(r); return nil })
	},
	"recall reply": func(b []byte) (*Encoder, error) {
		r, err := DecodeRecallReply(b)
		e := &Encoder{}
		return e, first(err, func() error { e.RecallReply(r); return nil })
	},
	"forward": func(b []byte) (*Encoder, error) {
		r, err := DecodeForward(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.Forward(r) })
	},
	"pull": func(b []byte) (*Encoder, error) {
		r, err := DecodePull(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.Pull(r) })
	},
	"pull reply": func(b []byte) (*Encoder, error) {
		r, err := DecodePullReply(b)
		e := &Encoder{}
		return e, first(err, func() error { return e.PullReply(r) })
	},
	"json": func(b []byte) (*Encoder, error) {
		r, err := DecodeJSON[brokerapi.SyncLiteRequest](b)
		e := &Encoder{}
		return e, first(err, func() error { return e.JSON(r) })
	},
	"event": func(b []byte) (*Encoder, error) {
		all, notice, err := DecodeReady(b)
		e := &Encoder{}
		return e, first(err, func() error {
			if notice != 0 {
				e.meta = AppendNotice(e.meta, notice)
			}
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
	seed(func(e *Encoder) {
		e.EndTxn(&brokerapi.EndTxnRequest{Topic: 1, ID: []byte("id"), Commit: true, Source: 1})
	})
	seed(func(e *Encoder) { e.Recall(&brokerapi.RecallRequest{Topic: 1, Ref: 2, DeliverAt: 3}) })
	seed(func(e *Encoder) {
		_ = e.ChecksReply(brokerapi.NewChecksReply([]brokerapi.Check{{Topic: 1, Half: 2, Checks: 3}}, nil))
	})
	seed(func(e *Encoder) {
		_ = e.Pull(&brokerapi.PullRequest{Topic: 1, Offset: 2, Max: 3, Filter: brokerapi.Filter{Kind: brokerapi.FilterSQL, SQL: "a = 1"}})
	})
	seed(func(e *Encoder) { _ = e.PullReply(brokerapi.NewPullReply(make([]brokerapi.Delivery, 1), 2, nil)) })
	seed(func(e *Encoder) {
		_ = e.JSON(&brokerapi.SyncLiteRequest{Topic: 1, Client: "c", Action: 2, Names: []string{"a"}})
	})
	seed(func(e *Encoder) { e.meta = AppendNotice(nil, brokerapi.NoticeChecks) })
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
