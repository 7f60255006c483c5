package bench

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	rmqv2 "github.com/perigee-mq/perigee/api/apache/rocketmq/v2"
)

const service = "/apache.rocketmq.v2.MessagingService/"

// pollTime is the long polling time of a receive.
const pollTime = 5 * time.Second

// worker is one caller: one call at a time.
type worker struct {
	l    *load
	conn *grpc.ClientConn
	id   int
	hist *hdrhistogram.Histogram // µs
}

func (w *worker) run(ctx context.Context) {
	kind := w.l.o.Kind
	if kind == Mix {
		kind = Send
		if w.id%2 == 1 {
			kind = Receive
		}
	}
	switch kind {
	case Send:
		w.send(ctx)
	case Receive:
		w.receive(ctx)
	}
}

// Headers are the eight request headers of a real client.
func Headers(client, request string) metadata.MD {
	return metadata.Pairs(
		"x-mq-client-id", client, "x-mq-language", "GO", "x-mq-protocol", "v2", "x-mq-client-version", "5.1.3", "x-mq-namespace", "",
		"x-mq-request-id", request, "x-mq-date-time", time.Now().UTC().Format("20060102T150405Z"),
		"authorization", "MQv2-HMAC-SHA1 Credential=//Rocketmq, SignedHeaders=x-mq-date-time, Signature=fbdb1d1b18aa6c08324b7d64b71fb76370690e1d",
	)
}

func (w *worker) context(ctx context.Context, seq uint64, timeout time.Duration) (context.Context, context.CancelFunc) {
	client := fmt.Sprintf("bench@%d@%d", w.id, w.l.o.Callers)
	// The deadline on the wire is the call's own, not the end of the run, which cancels it.
	free := metadata.NewOutgoingContext(context.WithoutCancel(ctx), Headers(client, fmt.Sprintf("%08x-0000-4000-8000-%012x", w.id, seq)))
	call, cancel := context.WithTimeout(free, timeout)
	stop := context.AfterFunc(ctx, cancel)
	return call, func() { stop(); cancel() }
}

// send sends until the run ends.
func (w *worker) send(ctx context.Context) {
	o := &w.l.o
	req, ids, err := SendRequest(o.Topic, o.Size, o.Batch)
	if err != nil {
		w.l.failed(ctx, err)
		return
	}
	for seq := uint64(0); ctx.Err() == nil && w.l.claim(o.Batch); seq++ {
		for i, at := range ids {
			stamp(req[at:at+idDigits], uint64(w.id), w.l.run<<runShift|(seq*uint64(len(ids))+uint64(i)))
		}
		began := time.Now()
		var reply []byte
		call, cancel := w.context(ctx, seq, o.Timeout)
		err := w.conn.Invoke(call, service+"SendMessage", req, &reply)
		cancel()
		var resp rmqv2.SendMessageResponse
		switch {
		case err != nil:
			w.l.failed(ctx, err)
			continue
		case seq%256 == 0: // look at a few answers whole, at the rest by their size
			if err := proto.Unmarshal(reply, &resp); err != nil || resp.GetStatus().GetCode() != rmqv2.Code_OK {
				w.l.failed(ctx, fmt.Errorf("send: %v %w", resp.GetStatus(), err))
				continue
			}
		case !statusOK(reply):
			w.l.failed(ctx, fmt.Errorf("send: an answer that is not OK: %x", reply[:min(len(reply), 32)]))
			continue
		}
		_ = w.hist.RecordValue(max(1, time.Since(began).Microseconds()))
		w.l.calls.Add(1)
		w.l.sent.Add(int64(o.Batch))
	}
}

// statusOK finds the code 20000 in an answer's status, which is its first field.
func statusOK(b []byte) bool {
	return len(b) > 6 && b[0] == 0x0a && b[2] == 0x08 && b[3] == 0xa0 && b[4] == 0x9c && b[5] == 0x01
}

// receive receives and acknowledges until the run ends.
func (w *worker) receive(ctx context.Context) {
	o := &w.l.o
	batch := o.Batch
	if o.Kind == Mix {
		batch = 32
	}
	req, err := proto.Marshal(&rmqv2.ReceiveMessageRequest{
		Group: &rmqv2.Resource{Name: o.Group}, MessageQueue: &rmqv2.MessageQueue{Topic: &rmqv2.Resource{Name: o.Topic}},
		FilterExpression: &rmqv2.FilterExpression{Type: rmqv2.FilterType_TAG, Expression: "*"},
		BatchSize:        int32(batch), InvisibleDuration: durationpb.New(time.Minute), LongPollingTimeout: durationpb.New(pollTime),
	})
	if err != nil {
		w.l.failed(ctx, err)
		return
	}
	for seq := uint64(0); ctx.Err() == nil; seq++ {
		began := time.Now()
		entries, err := w.poll(ctx, req, seq)
		if err != nil {
			w.l.failed(ctx, err)
			continue
		}
		if len(entries) == 0 {
			continue
		}
		if o.Kind == Receive {
			_ = w.hist.RecordValue(max(1, time.Since(began).Microseconds()))
		}
		w.l.calls.Add(1)
		w.l.received.Add(int64(len(entries)))
		if err := w.ack(ctx, entries, seq); err != nil {
			w.l.failed(ctx, err)
			continue
		}
		w.l.acked.Add(int64(len(entries)))
		if o.Count > 0 && w.l.acked.Load() >= o.Count {
			w.l.stop()
		}
	}
}

var pollDesc = &grpc.StreamDesc{ServerStreams: true}

// poll makes one receive and returns the entries to acknowledge.
func (w *worker) poll(ctx context.Context, req []byte, seq uint64) ([]*rmqv2.AckMessageEntry, error) {
	call, cancel := w.context(ctx, seq, pollTime+w.l.o.Timeout)
	defer cancel()
	st, err := w.conn.NewStream(call, pollDesc, service+"ReceiveMessage")
	if err != nil {
		return nil, err
	}
	if err := st.SendMsg(req); err != nil {
		return nil, err
	}
	if err := st.CloseSend(); err != nil {
		return nil, err
	}
	var entries []*rmqv2.AckMessageEntry
	for {
		var b []byte
		err := st.RecvMsg(&b)
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		e, err := entryOf(b)
		if err != nil {
			return nil, err
		}
		if e != nil {
			entries = append(entries, e)
		}
	}
}

func (w *worker) ack(ctx context.Context, entries []*rmqv2.AckMessageEntry, seq uint64) error {
	req, err := proto.Marshal(&rmqv2.AckMessageRequest{Group: &rmqv2.Resource{Name: w.l.o.Group}, Topic: &rmqv2.Resource{Name: w.l.o.Topic}, Entries: entries})
	if err != nil {
		return err
	}
	var reply []byte
	call, cancel := w.context(ctx, seq, w.l.o.Timeout)
	defer cancel()
	if err := w.conn.Invoke(call, service+"AckMessage", req, &reply); err != nil {
		return err
	}
	if !statusOK(reply) {
		return fmt.Errorf("ack: an answer that is not OK: %x", reply[:min(len(reply), 32)])
	}
	return nil
}

// idDigits is how many hex digits of a message id differ from message to message.
const idDigits = 24

// stamp writes the changing part of a message id.
func stamp(dst []byte, worker, seq uint64) {
	var b [idDigits / 2]byte
	binary.BigEndian.PutUint32(b[:], uint32(worker)^processID)
	binary.BigEndian.PutUint64(b[4:], seq)
	hex.Encode(dst, b[:])
}

// processID makes ids differ between processes, and runs counts the loads of this one: a message id that comes again
// is not stored, but answered from the duplicate window.
var (
	processID = uint32(time.Now().UnixNano())
	runs      atomic.Uint64
)

// runShift is where the number of the load stands above that of the message.
const runShift = 44
