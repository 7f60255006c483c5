package engine

import (
	"github.com/perigee-mq/perigee/broker/lite"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// apply takes one record of the log, in order.
func (v *views) apply(r record.Record) error {
	v.stamp = max(v.stamp, r.Time)
	v.epochs.take(&r.Header)
	if v.hole != nil {
		return v.applyBehind(r)
	}
	return v.applyRecord(r)
}

func (v *views) applyRecord(r record.Record) error {
	switch r.Type {
	case record.TypePad:
		return nil
	case record.TypeMsg:
		m, err := record.DecodeMsg(r.Body)
		if err != nil {
			return err
		}
		return v.applySent(r.Pos, r.Size, r.Time, &m)
	case record.TypePopCk:
		var ck record.PopCk
		if err := record.DecodePopCk(r.Body, &ck); err != nil {
			return err
		}
		return v.pop.ApplyLease(r.Pos, &ck)
	case record.TypePopAck:
		a, err := record.DecodePopAck(r.Body)
		if err != nil {
			return err
		}
		return v.pop.ApplyAck(&a)
	case record.TypePopChange:
		c, err := record.DecodePopChange(r.Body)
		if err != nil {
			return err
		}
		return v.pop.ApplyChange(&c)
	case record.TypeSkip:
		s, err := record.DecodeSkip(r.Body)
		if err != nil {
			return err
		}
		return v.pop.ApplySkip(&s)
	case record.TypeSessionEnd:
		s, err := record.DecodeSessionEnd(r.Body)
		if err != nil {
			return err
		}
		return v.pop.ApplySessionEnd(&s)
	case record.TypeTxnEnd:
		e, err := record.DecodeTxnEnd(r.Body)
		if err != nil {
			return err
		}
		return v.applyTxnEnd(r.Time, &e)
	case record.TypeTxnCheck:
		c, err := record.DecodeTxnCheck(r.Body)
		if err != nil {
			return err
		}
		return v.applyChecks(&c)
	case record.TypeDeliver:
		d, err := record.DecodeDeliver(r.Body)
		if err != nil {
			return err
		}
		return v.applyDeliver(r.Time, &d)
	case record.TypeRecall:
		c, err := record.DecodeRecall(r.Body)
		if err != nil {
			return err
		}
		return v.applyRecall(r.Time, &c)
	case record.TypeMeta:
		m, err := record.DecodeMeta(r.Body)
		if err != nil {
			return err
		}
		return v.applyMeta(r.Pos, r.Time, &m)
	case record.TypeOffset:
		o, err := record.DecodeOffsets(r.Body)
		if err != nil {
			return err
		}
		return v.applyOffsets(&o)
	case record.TypeDead:
		d, err := record.DecodeDead(r.Body)
		if err != nil {
			return err
		}
		return v.applyDead(r.Pos, r.Size, r.Time, &d)
	case record.TypeMove:
		in, err := record.Unwrap(r)
		if err != nil {
			return err
		}
		return v.applyMove(r.Pos, r.Size, r.Time, &in)
	case record.TypeTrim:
		t, err := record.DecodeTrim(r.Body)
		if err != nil {
			return err
		}
		return v.applyTrim(&t)
	case record.TypeSnapshot:
		return nil // says what the views are already
	case record.TypeEpoch:
		s, err := record.DecodeEpochStart(r.Body)
		if err != nil {
			return err
		}
		v.epoch = s.Epoch
		return nil
	}
	return mqerr.New(mqerr.Unsupported, "record type %d at %d belongs to a later release of perigee: start that release", r.Type, r.Pos)
}

// applyMsg gives a stored message its place.
func (v *views) applyMsg(pos record.Pos, size uint32, at int64, m *record.Msg) error {
	if m.Offset < 0 && m.Type == record.MsgTransaction && v.exists(m.Topic) {
		v.index.add(pos, at, m)
		return v.applyHalf(pos, size, at, m)
	}
	if m.Offset < 0 {
		v.index.add(pos, at, m)
		return v.applyTimer(pos, size, at, m)
	}
	if !v.exists(m.Topic) {
		return mqerr.New(mqerr.Corrupt, "the message at %d is of topic %d, which does not exist there", pos, m.Topic)
	}
	v.index.add(pos, at, m)
	if lite.Is(m.Queue) {
		if v.hole != nil {
			v.lite.Lost(m.Topic, m.Queue+1) // its number is not given again
		}
		if err := v.lite.Sent(m.Topic, m.Queue, at); err != nil && v.hole == nil {
			return err
		}
	}
	return v.place(queue.Key{Topic: m.Topic, Queue: m.Queue}, m.Offset,
		queue.Entry{Pos: pos, Size: size, Time: at, TagHash: m.TagHash, GroupHash: m.GroupHash})
}

// applyMeta creates, changes or deletes a topic, a group or a lite topic at a time.
func (v *views) applyMeta(pos record.Pos, at int64, m *record.Meta) error {
	switch m.Kind {
	case record.MetaTopic:
		if m.Deleted {
			v.queues.Drop(record.TopicID(m.ID))
			v.pop.DropTopic(record.TopicID(m.ID))
			v.txns.DropTopic(record.TopicID(m.ID))
			v.timers.DropTopic(record.TopicID(m.ID))
			v.pulled.DropTopic(record.TopicID(m.ID))
			v.redriven.DropTopic(record.TopicID(m.ID))
			v.lite.Drop(record.TopicID(m.ID))
			v.carried.DropTopic(record.TopicID(m.ID))
		}
		err := v.topics.Apply(m)
		v.cover(at)
		return err
	case record.MetaGroup:
		if m.Deleted {
			v.pop.DropGroup(record.GroupID(m.ID))
			v.pulled.DropGroup(record.GroupID(m.ID))
			v.carried.DropGroup(record.GroupID(m.ID))
		}
		return v.applyGroup(pos, at, m)
	case record.MetaLite:
		return v.applyLite(at, m)
	}
	return mqerr.New(mqerr.Unsupported, "META record at %d is of unknown kind %d: start the release of perigee that wrote it", pos, m.Kind)
}
