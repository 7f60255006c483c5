package codec

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

func (e *Encoder) joined() []byte { return bytes.Join(e.Parts(), nil) }

// span draws byte strings on both sides of spanMin; an empty one is nil, as decoders give it.
func drawSpan(t *rapid.T, name string) []byte {
	n := rapid.SampledFrom([]int{0, 1, 7, spanMin - 1, spanMin, spanMin + 1, 3000}).Draw(t, name)
	if n == 0 {
		return nil
	}
	return bytes.Repeat([]byte{rapid.Byte().Draw(t, name+" content")}, n)
}

func drawDigest(t *rapid.T) (d [16]byte) {
	if rapid.Bool().Draw(t, "has digest") {
		copy(d[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "digest"))
	}
	return d
}

func drawHead(t *rapid.T) brokerapi.Head {
	return brokerapi.Head{
		Principal: brokerapi.Principal{User: rapid.String().Draw(t, "user")},
		Epoch:     brokerapi.Epoch(rapid.Uint64().Draw(t, "epoch")),
	}
}

func drawHandles(t *rapid.T) []brokerapi.Handle {
	hs := make([]brokerapi.Handle, rapid.IntRange(0, 40).Draw(t, "handles"))
	for i := range hs {
		hs[i] = brokerapi.Handle{
			Queue: brokerapi.QueueID(rapid.Int32().Draw(t, "queue")), Offset: brokerapi.QueueOffset(rapid.Int64().Draw(t, "offset")),
			Lease: brokerapi.LogPos(rapid.Int64().Draw(t, "lease")), Epoch: brokerapi.Epoch(rapid.Uint64().Draw(t, "epoch")),
		}
	}
	return hs
}

func drawTopic(t *rapid.T) brokerapi.TopicID {
	return brokerapi.TopicID(rapid.Uint32().Draw(t, "topic"))
}

func drawGroup(t *rapid.T) brokerapi.GroupID {
	return brokerapi.GroupID(rapid.Uint32().Draw(t, "group"))
}

func drawSend(t *rapid.T) *brokerapi.SendRequest {
	r := &brokerapi.SendRequest{Head: drawHead(t), Topic: drawTopic(t), Layout: rapid.Uint64().Draw(t, "layout"), Age: time.Duration(rapid.Int64().Draw(t, "age")), Messages: make([]brokerapi.Message, rapid.IntRange(0, 5).Draw(t, "messages"))}
	for i := range r.Messages {
		r.Messages[i] = brokerapi.Message{
			Queue: brokerapi.QueueID(rapid.Int32Min(-1).Draw(t, "queue")), Type: brokerapi.MessageType(rapid.Byte().Draw(t, "type")),
			TagHash: rapid.Uint64().Draw(t, "tag"), GroupHash: rapid.Uint64().Draw(t, "group"), DeliverAt: rapid.Int64().Draw(t, "at"),
			Digest: drawDigest(t), CheckAfter: time.Duration(rapid.Int64().Draw(t, "check after")), Priority: rapid.Int32().Draw(t, "priority"),
			Lite: rapid.String().Draw(t, "lite"), ID: drawSpan(t, "id"), User: drawSpan(t, "user"), Sys: drawSpan(t, "sys"), Body: drawSpan(t, "body"),
		}
	}
	return r
}

func drawPop(t *rapid.T) *brokerapi.PopRequest {
	r := &brokerapi.PopRequest{
		Head: drawHead(t), Topic: drawTopic(t), Group: drawGroup(t), Client: rapid.String().Draw(t, "client"),
		Max: rapid.Int().Draw(t, "max"), MaxBytes: rapid.Int().Draw(t, "max bytes"), Invisible: time.Duration(rapid.Int64().Draw(t, "invisible")),
		Session: rapid.Bool().Draw(t, "session"), AttemptID: rapid.String().Draw(t, "attempt"), Arm: rapid.Bool().Draw(t, "arm"),
	}
	r.Filter.Kind = brokerapi.FilterKind(rapid.Byte().Draw(t, "filter"))
	for range rapid.IntRange(0, 4).Draw(t, "tags") {
		r.Filter.Tags = append(r.Filter.Tags, rapid.String().Draw(t, "tag"))
	}
	if r.Filter.Kind == brokerapi.FilterSQL {
		r.Filter.SQL = rapid.String().Draw(t, "sql")
	}
	return r
}

func drawDeliveries(t *rapid.T) []brokerapi.Delivery {
	var all []brokerapi.Delivery
	for range rapid.IntRange(0, 5).Draw(t, "deliveries") {
		all = append(all, brokerapi.Delivery{
			Queue: brokerapi.QueueID(rapid.Int32().Draw(t, "queue")), Offset: brokerapi.QueueOffset(rapid.Int64().Draw(t, "offset")),
			Lease: brokerapi.LogPos(rapid.Int64().Draw(t, "lease")), Epoch: brokerapi.Epoch(rapid.Uint64().Draw(t, "epoch")),
			Attempt: rapid.Int32().Draw(t, "attempt"), Type: brokerapi.MessageType(rapid.Byte().Draw(t, "type")),
			StoreTime: rapid.Int64().Draw(t, "store time"), DeliverAt: rapid.Int64().Draw(t, "at"), Digest: drawDigest(t),
			User: drawSpan(t, "user"), Sys: drawSpan(t, "sys"), Body: drawSpan(t, "body"),
		})
	}
	return all
}

func drawErrors(t *rapid.T) []error {
	errs := make([]error, rapid.IntRange(0, 40).Draw(t, "results"))
	for i := range errs {
		if rapid.Bool().Draw(t, "failed") {
			errs[i] = &mqerr.Error{Kind: rapid.SampledFrom(mqerr.Kinds()).Draw(t, "kind"), Text: rapid.StringN(0, 20, 80).Draw(t, "text")}
		}
	}
	return errs
}

func TestRequestsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Encoder
		send := drawSend(t)
		require.NoError(t, e.Send(send))
		require.Equal(t, len(e.joined()), e.Size())
		gotSend, err := DecodeSend(e.joined())
		require.NoError(t, err)
		require.Equal(t, send, gotSend)

		e = Encoder{}
		pop := drawPop(t)
		require.NoError(t, e.Pop(pop))
		gotPop, err := DecodePop(e.joined())
		require.NoError(t, err)
		require.Equal(t, pop, gotPop)

		e = Encoder{}
		ack := &brokerapi.AckRequest{Head: drawHead(t), Topic: drawTopic(t), Group: drawGroup(t), Handles: drawHandles(t)}
		require.NoError(t, e.Ack(ack))
		gotAck, err := DecodeAck(e.joined())
		require.NoError(t, err)
		require.Equal(t, ack, gotAck)

		e = Encoder{}
		change := &brokerapi.ChangeRequest{
			Head: drawHead(t), Topic: drawTopic(t), Group: drawGroup(t), Handles: drawHandles(t),
			Invisible: time.Duration(rapid.Int64().Draw(t, "invisible")), Mode: brokerapi.ChangeMode(rapid.Byte().Draw(t, "mode")),
		}
		require.NoError(t, e.Change(change))
		gotChange, err := DecodeChange(e.joined())
		require.NoError(t, err)
		require.Equal(t, change, gotChange)

		e = Encoder{}
		clients := rapid.SliceOf(rapid.String()).Draw(t, "clients")
		require.NoError(t, e.Alive(clients))
		gotClients, err := DecodeAlive(e.joined())
		require.NoError(t, err)
		require.Equal(t, len(clients), len(gotClients))
		require.Equal(t, strings.Join(clients, "\n"), strings.Join(gotClients, "\n"))

		e = Encoder{}
		client := rapid.String().Draw(t, "client")
		e.EndSession(client)
		gotClient, err := DecodeEndSession(e.joined())
		require.NoError(t, err)
		require.Equal(t, client, gotClient)

		e = Encoder{}
		topic, group := drawTopic(t), drawGroup(t)
		e.Describe(topic, group)
		gotTopic, gotGroup, err := DecodeDescribe(e.joined())
		require.NoError(t, err)
		require.Equal(t, topic, gotTopic)
		require.Equal(t, group, gotGroup)
	})
}

func TestRepliesSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Encoder
		sent := &brokerapi.SendReply{Results: make([]brokerapi.SendResult, rapid.IntRange(0, 40).Draw(t, "results"))}
		for i := range sent.Results {
			sent.Results[i] = brokerapi.SendResult{
				Queue: brokerapi.QueueID(rapid.Int32().Draw(t, "queue")), Offset: brokerapi.QueueOffset(rapid.Int64().Draw(t, "offset")),
				Pos: brokerapi.LogPos(rapid.Int64().Draw(t, "pos")), StoreTime: rapid.Int64().Draw(t, "time"), Duplicate: rapid.Bool().Draw(t, "duplicate"),
			}
			if sent.Results[i].Duplicate {
				sent.Results[i].DeliverAt = rapid.Int64().Draw(t, "deliver at")
			}
		}
		e.SendReply(sent)
		gotSent, err := DecodeSendReply(e.joined(), len(sent.Results))
		require.NoError(t, err)
		require.Equal(t, sent, gotSent)
		_, err = DecodeSendReply(e.joined(), len(sent.Results)+1)
		require.True(t, mqerr.Is(err, mqerr.Invalid))

		e = Encoder{}
		popped := brokerapi.NewPopReply(drawDeliveries(t), nil)
		popped.More, popped.Full = rapid.Bool().Draw(t, "more"), rapid.Bool().Draw(t, "full")
		require.NoError(t, e.PopReply(popped))
		require.Equal(t, len(e.joined()), e.Size())
		deliveries, more, full, err := DecodePopReply(e.joined())
		require.NoError(t, err)
		require.Equal(t, popped.Messages, deliveries)
		require.Equal(t, popped.More, more)
		require.Equal(t, popped.Full, full)

		e = Encoder{}
		errs := drawErrors(t)
		e.Errors(errs)
		gotErrs, err := DecodeErrors(e.joined(), len(errs))
		require.NoError(t, err)
		require.Equal(t, errs, gotErrs)
		_, err = DecodeErrors(e.joined(), len(errs)+1)
		require.True(t, mqerr.Is(err, mqerr.Invalid))

		e = Encoder{}
		ready := make([]brokerapi.Ready, rapid.IntRange(1, 40).Draw(t, "ready"))
		var event []byte
		for i := range ready {
			ready[i] = brokerapi.Ready{Topic: 1 + drawTopic(t)>>1, Group: drawGroup(t), Count: rapid.IntRange(1, 1<<62-1).Draw(t, "count"), Client: rapid.Uint64().Draw(t, "client")}
			before := len(event)
			event = AppendReady(event, ready[i])
			require.LessOrEqual(t, len(event)-before, ReadyMax)
		}
		notice := brokerapi.Notice(rapid.IntRange(0, 3).Draw(t, "notice"))
		if notice != 0 {
			before := len(event)
			event = AppendNotice(event, notice)
			require.LessOrEqual(t, len(event)-before, NoticeMax)
		}
		gotReady, gotNotice, err := DecodeReady(event)
		require.NoError(t, err)
		require.Equal(t, notice, gotNotice)
		require.Equal(t, ready, gotReady)
	})
}

func TestDescriptionsSurvive(t *testing.T) {
	groups := []brokerapi.GroupQueue{
		{Queue: 0, Min: 1, Max: 2, Floor: 3, Next: 4, InFlight: 5, Ready: 6, Waiting: 7, OldestMS: 8, OverMax: 9, Lost: 10, MaxInFlight: 11, MaxInFlightClient: 12, Used: true},
		{Queue: 1, Min: 1 << 60, OldestMS: -1},
	}
	var e Encoder
	require.NoError(t, e.GroupQueues(groups))
	gotGroups, err := DecodeGroupQueues(e.joined())
	require.NoError(t, err)
	require.Equal(t, groups, gotGroups)

	topics := []brokerapi.TopicQueue{{Queue: 0, Min: 1, Max: 2, LastMS: 3}, {Queue: 7}}
	e = Encoder{}
	require.NoError(t, e.TopicQueues(topics))
	gotTopics, err := DecodeTopicQueues(e.joined())
	require.NoError(t, err)
	require.Equal(t, topics, gotTopics)
}

func TestErrorsSurvive(t *testing.T) {
	for _, k := range mqerr.Kinds() {
		var e Encoder
		e.Error(mqerr.New(k, "why %v", k))
		got := DecodeError(e.joined())
		require.Equal(t, k, got.Kind)
		require.Equal(t, "why "+k.String(), got.Text)
	}
	var e Encoder
	e.Error(errors.New(strings.Repeat("é", textMax)))
	got := DecodeError(e.joined())
	require.Equal(t, mqerr.Internal, got.Kind)
	require.Equal(t, strings.Repeat("é", textMax/2), got.Text)
	require.Equal(t, mqerr.Internal, DecodeError([]byte{255, 1, 'x'}).Kind, "a kind of a newer release")
	require.Equal(t, mqerr.Internal, DecodeError(nil).Kind)
}

// A long body is not copied by the encoder, and a decoder takes it from its input.
func TestBodiesAreNotCopied(t *testing.T) {
	body := make([]byte, 4<<20)
	req := &brokerapi.SendRequest{Topic: 1, Messages: []brokerapi.Message{{Queue: brokerapi.AnyQueue, Type: brokerapi.Normal, ID: []byte("id"), Body: body}}}
	var e Encoder
	require.NoError(t, e.Send(req))
	parts := e.Parts()
	require.Same(t, &body[0], &parts[len(parts)-1][0])

	in := e.joined()
	got, err := DecodeSend(in)
	require.NoError(t, err)
	require.Same(t, &in[len(in)-1], &got.Messages[0].Body[len(body)-1])

	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		var e Encoder
		_ = e.Send(req)
		_ = e.Parts()
	}), 3.0)
}

func TestBounds(t *testing.T) {
	var e Encoder
	require.True(t, mqerr.Is(e.Ack(&brokerapi.AckRequest{Handles: make([]brokerapi.Handle, ListMax+1)}), mqerr.Invalid))
	require.True(t, mqerr.Is(e.Send(&brokerapi.SendRequest{Messages: make([]brokerapi.Message, ListMax+1)}), mqerr.Invalid))

	// A count that its input cannot hold must not be allocated.
	var few Encoder
	few.head(&brokerapi.Head{})
	few.uint(1)
	few.uint(ListMax)
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
		_, err := DecodeSend(few.joined())
		if !mqerr.Is(err, mqerr.Invalid) {
			t.Fatalf("error %v", err)
		}
	}), 12.0)
}

func TestModelSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Encoder
		pull := &brokerapi.PullRequest{
			Head: drawHead(t), Topic: drawTopic(t), Group: drawGroup(t), Queue: brokerapi.QueueID(rapid.Int32().Draw(t, "queue")),
			Offset: brokerapi.QueueOffset(rapid.Int64().Draw(t, "offset")), Max: rapid.Int().Draw(t, "max"), MaxBytes: rapid.Int().Draw(t, "max bytes"),
			Wait: time.Duration(rapid.Int64().Draw(t, "wait")), Filter: drawPop(t).Filter,
		}
		require.NoError(t, e.Pull(pull))
		gotPull, err := DecodePull(e.joined())
		require.NoError(t, err)
		require.Equal(t, pull, gotPull)

		e = Encoder{}
		pulled := brokerapi.NewPullReply(drawDeliveries(t), brokerapi.QueueOffset(rapid.Int64().Draw(t, "next")), nil)
		pulled.Min, pulled.Max = brokerapi.QueueOffset(rapid.Int64().Draw(t, "min")), brokerapi.QueueOffset(rapid.Int64().Draw(t, "max"))
		require.NoError(t, e.PullReply(pulled))
		gotPulled, err := DecodePullReply(e.joined())
		require.NoError(t, err)
		require.Equal(t, pulled, gotPulled)

		e = Encoder{}
		end := &brokerapi.EndTxnRequest{
			Head: drawHead(t), Topic: drawTopic(t), ID: drawSpan(t, "id"),
			Commit: rapid.Bool().Draw(t, "commit"), Source: brokerapi.TxnSource(rapid.Byte().Draw(t, "source")),
		}
		e.EndTxn(end)
		gotEnd, err := DecodeEndTxn(e.joined())
		require.NoError(t, err)
		require.Equal(t, end, gotEnd)

		e = Encoder{}
		var checks []brokerapi.Check
		for i, m := range drawDeliveries(t) {
			checks = append(checks, brokerapi.Check{Topic: drawTopic(t), Half: brokerapi.LogPos(rapid.Int64().Draw(t, "half")), Checks: i, Message: m})
		}
		reply := brokerapi.NewChecksReply(checks, nil)
		reply.More = rapid.Bool().Draw(t, "more")
		require.NoError(t, e.ChecksReply(reply))
		gotChecks, more, err := DecodeChecksReply(e.joined())
		require.NoError(t, err)
		require.Equal(t, reply.More, more)
		require.Equal(t, checks, gotChecks)

		e = Encoder{}
		recall := &brokerapi.RecallRequest{Head: drawHead(t), Topic: drawTopic(t), Ref: brokerapi.LogPos(rapid.Int64().Draw(t, "ref")), DeliverAt: rapid.Int64().Draw(t, "at")}
		e.Recall(recall)
		gotRecall, err := DecodeRecall(e.joined())
		require.NoError(t, err)
		require.Equal(t, recall, gotRecall)
	})
}

func TestJSONIsStrict(t *testing.T) {
	for _, bad := range []string{"", "{", `{"nonsense":1}`, "{}{}", "[]", `{"topic":-1}`} {
		_, err := DecodeJSON[brokerapi.FindRequest]([]byte(bad))
		require.True(t, mqerr.Is(err, mqerr.Invalid), bad)
	}
	got, err := DecodeJSON[brokerapi.FindRequest]([]byte(`{"topic":7,"key":"k"}`))
	require.NoError(t, err)
	require.Equal(t, &brokerapi.FindRequest{Topic: 7, Key: "k"}, got)
}
