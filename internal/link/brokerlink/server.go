package brokerlink

import (
	"context"
	"sync"

	"github.com/perigee-mq/perigee/internal/brokerapi"
	"github.com/perigee-mq/perigee/internal/brokerapi/codec"
	"github.com/perigee-mq/perigee/internal/link"
	"github.com/perigee-mq/perigee/internal/mqerr"
)

// waitersMax bounds the calls of one link that wait on a goroutine of their own.
const waitersMax = 256

// Server serves one link: a session with the broker, closed after the link has ended and every
// request was answered. It has one goroutine besides those of the link, and one for each call
// that blocks, such as Alive, under way.
type Server struct {
	b       brokerapi.Broker
	ctx     context.Context // ends with the link
	waiters chan struct{}
	busy    sync.WaitGroup // requests that the broker has not answered
	gone    chan struct{}

	mu    sync.Mutex
	l     *link.Server
	order []concern // of ready
	ready map[concern]int
	has   brokerapi.Notice
}

// concern is whom a Ready event is for.
type concern struct {
	topic  brokerapi.TopicID
	group  brokerapi.GroupID
	client uint64
}

// NewServer attaches to a broker for the proxy of that name and serves it over t.
func NewServer(t link.Transport, c brokerapi.Connector, proxy string, o link.Options) (*Server, error) {
	s := &Server{waiters: make(chan struct{}, waitersMax), gone: make(chan struct{}), ready: map[concern]int{}}
	b, err := c.Attach(proxy, brokerapi.Events{Ready: s.notify, Notice: s.notice, Down: func(error) { s.link().Close() }})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.b, s.ctx = b, ctx
	s.mu.Lock() // events wait until l is set
	s.l = link.NewServer(t, s, o)
	s.mu.Unlock()
	go func() {
		defer close(s.gone)
		<-s.l.Done()
		cancel()
		s.l.Wait()
		s.busy.Wait()
		_ = s.b.Close() // nobody is there to be told
	}()
	return s, nil
}

func (s *Server) link() *link.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.l
}

// Drain refuses new requests and ends the link when the others are answered.
func (s *Server) Drain() { s.l.Drain() }

// Close ends the link at once.
func (s *Server) Close() { s.l.Close() }

// Done is closed when the link has ended.
func (s *Server) Done() <-chan struct{} { return s.l.Done() }

// Err is why the link has ended, nil while it works.
func (s *Server) Err() error { return s.l.Err() }

// Wait returns when the session is closed. The transport must let Send and Recv return by then.
func (s *Server) Wait() { <-s.gone }

// notify gathers events until the link has room for them; of one kind the last counts.
func (s *Server) notify(ready []brokerapi.Ready) {
	s.mu.Lock()
	for _, r := range ready {
		k := concern{r.Topic, r.Group, r.Client}
		if _, waits := s.ready[k]; !waits {
			s.order = append(s.order, k)
		}
		s.ready[k] = r.Count
	}
	l := s.l
	s.mu.Unlock()
	l.Notify()
}

// notice gathers what waits for the proxy.
func (s *Server) notice(n brokerapi.Notice) {
	s.mu.Lock()
	s.has |= n
	l := s.l
	s.mu.Unlock()
	l.Notify()
}

// Events appends what was gathered.
func (s *Server) Events(dst []byte, limit int) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has != 0 && limit >= codec.NoticeMax {
		before := len(dst)
		dst = codec.AppendNotice(dst, s.has)
		limit -= len(dst) - before
		s.has = 0
	}
	n := 0
	for _, k := range s.order {
		if limit < codec.ReadyMax {
			break
		}
		before := len(dst)
		dst = codec.AppendReady(dst, brokerapi.Ready{Topic: k.topic, Group: k.group, Client: k.client, Count: s.ready[k]})
		limit -= len(dst) - before
		delete(s.ready, k)
		n++
	}
	s.order = s.order[n:]
	if len(s.order) == 0 {
		s.order = nil
	}
	return dst, len(s.order) > 0 || s.has != 0
}

// Serve hands a request to the broker.
func (s *Server) Serve(r *link.Request) {
	s.busy.Add(1)
	var err error
	switch codec.Op(r.Op) {
	case codec.OpSend:
		err = s.send(r)
	case codec.OpPop:
		err = s.pop(r)
	case codec.OpAck:
		err = s.ack(r)
	case codec.OpChange:
		err = s.change(r)
	case codec.OpEndTxn:
		err = s.endTxn(r)
	case codec.OpChecks:
		err = s.checks(r)
	case codec.OpRecall:
		err = s.recall(r)
	case codec.OpForward:
		err = s.forward(r)
	case codec.OpPull:
		err = s.pull(r)
	case codec.OpAlive, codec.OpEndSession, codec.OpDescribeGroup, codec.OpDescribeTopic:
		err = s.wait(r)
	default:
		if questions[codec.Op(r.Op)] != nil {
			err = s.wait(r)
			break
		}
		err = mqerr.New(mqerr.Unsupported, "the broker does not know the request %d: it needs a newer release", r.Op)
	}
	if err != nil {
		s.fail(r, err)
	}
}

// fail answers with an error.
func (s *Server) fail(r *link.Request, err error) {
	var e codec.Encoder
	e.Error(err)
	s.answer(r, &e, true, nil)
}

func (s *Server) answer(r *link.Request, e *codec.Encoder, failed bool, sent func(bool)) {
	r.Reply(e.Parts(), failed, sent)
	s.busy.Done()
}

func (s *Server) send(r *link.Request) error {
	req, err := codec.DecodeSend(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	s.b.Send(req, func(reply *brokerapi.SendReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		var e codec.Encoder
		e.SendReply(reply)
		s.answer(r, &e, false, nil)
	})
	return nil
}

func (s *Server) pop(r *link.Request) error {
	req, err := codec.DecodePop(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	req.MaxBytes = min(req.MaxBytes, popBytesMax)
	s.b.Pop(req, func(reply *brokerapi.PopReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		var e codec.Encoder
		err = e.PopReply(reply)
		if err == nil && e.Size() > link.MessageMax {
			err = mqerr.New(mqerr.Internal, "a delivery of %d bytes, at most %d can pass between broker and proxy", e.Size(), link.MessageMax)
		}
		if err != nil {
			s.unsent(req, reply)
			s.fail(r, err)
			return
		}
		s.answer(r, &e, false, func(ok bool) {
			if ok {
				reply.Release()
				return
			}
			s.unsent(req, reply)
		})
	})
	return nil
}

// unsent gives back the messages of a reply that will not arrive.
func (s *Server) unsent(req *brokerapi.PopRequest, reply *brokerapi.PopReply) {
	if len(reply.Messages) == 0 {
		reply.Release()
		return
	}
	back := giveBack(req.Topic, req.Group, req.Principal, reply.Messages)
	reply.Release()
	s.busy.Add(1)
	s.b.Change(back, func(*brokerapi.ChangeReply, error) { s.busy.Done() })
}

func (s *Server) ack(r *link.Request) error {
	req, err := codec.DecodeAck(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	s.b.Ack(req, func(reply *brokerapi.AckReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		s.errors(r, reply.Errors)
	})
	return nil
}

func (s *Server) change(r *link.Request) error {
	req, err := codec.DecodeChange(r.Body)
	if err != nil {
		return err
	}
	req.Deadline = r.Deadline
	s.b.Change(req, func(reply *brokerapi.ChangeReply, err error) {
		if err != nil {
			s.fail(r, err)
			return
		}
		s.errors(r, reply.Errors)
	})
	return nil
}

func (s *Server) errors(r *link.Request, errs []error) {
	var e codec.Encoder
	e.Errors(errs)
	s.answer(r, &e, false, nil)
}

// wait serves a call that may block.
func (s *Server) wait(r *link.Request) error {
	select {
	case s.waiters <- struct{}{}:
	default:
		return mqerr.New(mqerr.Exhausted, "%d requests of this proxy are under way already: retry after a pause", waitersMax)
	}
	go func() {
		defer func() { <-s.waiters }()
		ctx := s.ctx
		if !r.Deadline.IsZero() {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, r.Deadline)
			defer cancel()
		}
		var e codec.Encoder
		if err := s.question(ctx, r, &e); err != nil {
			s.fail(r, err)
			return
		}
		s.answer(r, &e, false, nil)
	}()
	return nil
}

func (s *Server) question(ctx context.Context, r *link.Request, e *codec.Encoder) error {
	if ask := questions[codec.Op(r.Op)]; ask != nil {
		return ask(ctx, s.b, r.Body, e)
	}
	switch codec.Op(r.Op) {
	case codec.OpAlive:
		clients, err := codec.DecodeAlive(r.Body)
		if err != nil {
			return err
		}
		return s.b.Alive(ctx, clients)
	case codec.OpEndSession:
		client, err := codec.DecodeEndSession(r.Body)
		if err != nil {
			return err
		}
		return s.b.EndSession(ctx, client)
	}
	topic, group, err := codec.DecodeDescribe(r.Body)
	if err != nil {
		return err
	}
	if codec.Op(r.Op) == codec.OpDescribeTopic {
		qs, err := s.b.DescribeTopic(ctx, topic)
		if err != nil {
			return err
		}
		return e.TopicQueues(qs)
	}
	qs, err := s.b.DescribeGroup(ctx, topic, group)
	if err != nil {
		return err
	}
	return e.GroupQueues(qs)
}
