package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/index"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// Bounds of a search.
const (
	findMax      = 1024
	findBytes    = 8 << 20 // of what the messages of one reply hold
	findReads    = 1 << 16 // records that one search reads
	findUnknowns = 20      // parts that are named which could not be looked at
)

// Find looks for stored messages by key, by id, or by place.
func (s *session) Find(ctx context.Context, req *brokerapi.FindRequest) (*brokerapi.FindReply, error) {
	if err := checkFind(req); err != nil {
		return nil, err
	}
	f := &finder{e: s.e, req: req, hash: index.Hash(record.TopicID(req.Topic), index.ID, []byte(req.ID))}
	if req.Key != "" {
		f.hash = index.Hash(record.TopicID(req.Topic), index.Key, []byte(req.Key))
	}
	reply, err := query(ctx, s, f.look, f.run)
	if err != nil || len(reply.Messages) == 0 {
		return reply, err
	}
	if err := s.states(ctx, reply.Messages); err != nil {
		return nil, err
	}
	return reply, nil
}

func checkFind(req *brokerapi.FindRequest) error {
	switch {
	case req.Max < 1 || req.Max > findMax:
		return mqerr.New(mqerr.Invalid, "a search for %d messages: ask for 1 to %d", req.Max, findMax)
	case req.Key != "" && req.ID != "":
		return mqerr.New(mqerr.Invalid, "a search by key and by id: name one of them")
	case req.FromMS < 0 || req.ToMS < 0 || req.ToMS != 0 && req.ToMS <= req.FromMS:
		return mqerr.New(mqerr.Invalid, "a search for times from %d up to %d: the end must be later", req.FromMS, req.ToMS)
	case req.Key == "" && req.ID == "" && (req.Queue < 0 || req.Offset < 0):
		return mqerr.New(mqerr.Invalid, "a search for queue %d, offset %d: name a key, an id, or a place", req.Queue, req.Offset)
	}
	return nil
}

// finder is one search.
type finder struct {
	e     *Engine
	req   *brokerapi.FindRequest
	hash  uint64
	end   record.Pos         // records below may be shown
	seen  record.QueueOffset // offsets of the queue below may be shown
	reads int
	held  int
	// carried says that messages were carried forward by retention: then positions in the index do not tell when
	// a message was stored, and one may have two of them.
	carried bool
	met     map[brokerapi.LogPos]bool // of those that were carried
	out     brokerapi.FindReply
}

// look notes how far the topic may be seen: what is not durable yet may still vanish.
func (f *finder) look(w *writer) error {
	t, err := w.topicOf(f.req.Topic)
	if err != nil {
		return err
	}
	f.end = w.e.shown(t.sync)
	if q := int(f.req.Queue); q >= 0 && q < len(t.queues) {
		f.seen = t.queues[q].visible
	} else if _, end := w.views.queues.Bounds(f.key()); end > 0 {
		f.seen = end // of a lite topic
	} else if f.byPlace() {
		return mqerr.New(mqerr.Invalid, "topic %s has %d queues here, there is no queue %d", t.def.Name, len(t.queues), q)
	}
	return nil
}

func (f *finder) byPlace() bool { return f.req.Key == "" && f.req.ID == "" }

func (f *finder) run(ctx context.Context) (*brokerapi.FindReply, error) {
	f.out.Messages = []brokerapi.Found{}
	if f.byPlace() {
		return &f.out, f.place()
	}
	to := f.req.ToMS
	if f.carried = f.e.views.carried.Len() > 0; f.carried {
		to, f.met = 0, map[brokerapi.LogPos]bool{}
	}
	gaps, err := f.e.o.Store.Index().Lookup(f.hash, f.req.FromMS, to, func(found []record.Pos) (bool, error) { return f.portion(ctx, found) })
	if err != nil {
		return nil, err
	}
	for _, g := range gaps {
		if g.Lost {
			f.unknown("messages stored from %s to %s that are lost or damaged in the log are not found", stamp(g.FromMS), stamp(g.ToMS))
			continue
		}
		f.unknown("the index of messages stored from %s to %s is being rebuilt", stamp(g.FromMS), stamp(g.ToMS))
	}
	return &f.out, nil
}

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func (f *finder) unknown(format string, args ...any) {
	switch n := len(f.out.Unknown); {
	case n < findUnknowns:
		f.out.Unknown = append(f.out.Unknown, fmt.Sprintf(format, args...))
	case n == findUnknowns:
		f.out.Unknown = append(f.out.Unknown, "and more")
	}
}

func (f *finder) key() queue.Key {
	return queue.Key{Topic: record.TopicID(f.req.Topic), Queue: record.QueueID(f.req.Queue)}
}

// place reads one message by its place.
func (f *finder) place() error {
	key, off := f.key(), record.QueueOffset(f.req.Offset)
	if off >= f.seen {
		return mqerr.New(mqerr.NotFound, "queue %d ends at offset %d, there is no %d yet", key.Queue, f.seen, off)
	}
	e, err := f.e.views.entryAt(key, off)
	if err == nil && e.Pos >= f.end {
		err = mqerr.New(mqerr.NotFound, "the message at offset %d of queue %d is not durable yet", off, key.Queue)
	}
	if err != nil {
		return err
	}
	m, err := f.read(e.Pos)
	if err != nil {
		return err
	}
	if m.Offset < 0 { // it got its place after it was stored
		m.Queue, m.Offset = f.req.Queue, f.req.Offset
	}
	f.out.Messages = append(f.out.Messages, *m)
	return nil
}

// portion goes through positions that rise, backwards, and tells whether older ones are wanted.
func (f *finder) portion(ctx context.Context, found []record.Pos) (bool, error) {
	found = found[:sort.Search(len(found), func(i int) bool { return found[i] >= f.end })]
	if f.req.ToMS != 0 && !f.carried {
		found = found[:sort.Search(len(found), func(i int) bool { return f.timeOf(found[i]) >= f.req.ToMS })]
	}
	for _, pos := range slices.Backward(found) {
		if err := over(ctx); err != nil {
			return false, err
		}
		m, err := f.read(pos)
		switch {
		case mqerr.Is(err, mqerr.NotFound): // deleted with its part of the log
			continue
		case err != nil:
			f.unknown("the message at %d: %v", pos, err)
			continue
		case f.carried && (f.met[m.Pos] || m.StoreTime < f.req.FromMS || f.req.ToMS != 0 && m.StoreTime >= f.req.ToMS):
			continue
		case m.StoreTime < f.req.FromMS:
			return false, nil
		case !f.matches(m):
			continue
		}
		if f.carried {
			f.met[m.Pos] = true
		}
		if len(f.out.Messages) == f.req.Max || f.held > findBytes && len(f.out.Messages) > 0 || f.reads > findReads {
			f.out.More = true
			return false, nil
		}
		f.held += len(m.User) + len(m.Sys) + len(m.Body)
		f.out.Messages = append(f.out.Messages, *m)
	}
	return true, nil
}

// timeOf is the store time of a record; that of one which cannot be read is in the range: who reads it tells.
func (f *finder) timeOf(pos record.Pos) int64 {
	r, ref, err := f.e.log.Read(pos, 0)
	if err != nil {
		return 0
	}
	defer ref.Release()
	f.reads++
	return r.Time
}

// matches compares the text of what was asked for: the index knows hashes.
func (f *finder) matches(m *brokerapi.Found) bool {
	if m.Topic != f.req.Topic {
		return false
	}
	if f.req.ID != "" {
		return m.ID == f.req.ID
	}
	for key := range index.Keys(m.Sys) {
		if string(key) == f.req.Key {
			return true
		}
	}
	return false
}

func (f *finder) read(pos record.Pos) (*brokerapi.Found, error) {
	f.reads++
	return f.e.readMessage(pos, f.req.Bodies)
}

// readMessage reads the message that a record stores; one that was carried is named by the position at which it
// was written first. It is NotFound if the record stores none.
func (e *Engine) readMessage(pos record.Pos, body bool) (*brokerapi.Found, error) {
	r, ref, err := e.read(pos, 0)
	if err != nil {
		return nil, err
	}
	defer ref.Release()
	var m record.Msg
	switch r.Type {
	case record.TypeMsg:
		m, err = record.DecodeMsg(r.Body)
	case record.TypeDead:
		var d record.Dead
		d, err = record.DecodeDead(r.Body)
		m = d.Msg
	default:
		err = mqerr.New(mqerr.NotFound, "the record at %d stores no message", pos)
	}
	if err != nil {
		return nil, err
	}
	out := &brokerapi.Found{
		Pos: brokerapi.LogPos(r.Pos), Topic: brokerapi.TopicID(m.Topic), Queue: brokerapi.QueueID(m.Queue), Offset: brokerapi.QueueOffset(m.Offset),
		Type: brokerapi.MessageType(m.Type), StoreTime: r.Time, DeliverAt: m.DeliverAt, ID: string(m.ID), Size: len(m.Body),
		User: bytes.Clone(m.User), Sys: bytes.Clone(m.Sys),
	}
	if m.Type == record.MsgTransaction {
		out.DeliverAt = 0 // of a half message it is the time of its first check
	}
	if body {
		out.Body = bytes.Clone(m.Body)
	}
	return out, nil
}
