package link

import (
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
)

// Receiver is told how a call ended: Answer or Fail exactly once, and after Fail perhaps Late, once.
// They are called on goroutines of the link and must not block. The bytes belong to the receiver.
type Receiver interface {
	// Answer brings the answer, or an encoded error if failed. With keep the answer's credit stays
	// taken until the receiver calls Client.Return with its class and size.
	Answer(body []byte, failed bool) (keep bool)
	// Fail tells why there is no answer: Unavailable, Draining, Exhausted, Timeout and Cancelled say
	// that the request surely was not looked at, UnknownOutcome that it may have been.
	Fail(err error)
	// Late brings the answer to a call that has failed meanwhile, so that what it holds can be given
	// back.
	Late(body []byte, failed bool)
}

// Call is one request. The caller fills the exported fields and must leave Parts alone until the call
// has ended.
type Call struct {
	Op       uint8
	Class    Class
	Parts    [][]byte
	Deadline time.Time // zero: none
	To       Receiver

	message
	ended  bool     // Answer or Fail was called, or is about to be
	place  int      // in the heap of deadlines, -1: not in it
	answer assembly // what has come of it
}

// ClientOptions configures a Client.
type ClientOptions struct {
	Options
	// Event is called with each event, on the reader goroutine; it must not block. An error ends the
	// link. The bytes are valid during the call.
	Event func(payload []byte) error
	// Down is called once, when the link has ended and all calls are completed.
	Down func(err error)
}

// Client is the side that asks.
type Client struct {
	conn
	event func([]byte) error
	down  func(error)

	// The mutex of conn guards what follows.
	calls     map[uint32]*Call // not answered yet, ended or not
	lastID    uint32
	deadlines deadlines
	draining  bool // the server wants no more requests
	last      bool // and is told that there are none
}

// NewClient starts the client's side of a link over t, which it closes at the end.
func NewClient(t Transport, o ClientOptions) *Client {
	c := &Client{event: o.Event, down: o.Down, calls: map[uint32]*Call{}}
	c.conn.init(t, o.Options, c)
	c.start()
	return c
}

// Close ends the link: calls without an answer are completed with an error. It does not wait.
func (c *Client) Close() {
	c.fail(mqerr.New(mqerr.Unavailable, "this connection to the broker is closed"))
}

// Draining tells whether the server has asked for no more requests.
func (c *Client) Draining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.draining
}

// Start sends a request. It does not block; its receiver may be called before it returns.
func (c *Client) Start(call *Call) {
	if err := c.begin(call); err != nil {
		call.ended = true // nobody else knows the call
		call.To.Fail(err)
	}
}

func (c *Client) begin(call *Call) error {
	call.init(call.Parts)
	if call.size > MessageMax {
		return mqerr.New(mqerr.Invalid, "a request of %d bytes, at most %d are possible", call.size, MessageMax)
	}
	if !call.Deadline.IsZero() && !time.Now().Before(call.Deadline) {
		return timeout
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.out.waiting[call.Class]
	switch {
	case c.err != nil:
		return unsent(c.err)
	case c.draining:
		return draining
	case waiting > 0 && waiting+charge(call.size) > c.o.Waiting[call.Class]:
		c.n.Exhausted.Add(1)
		return mqerr.New(mqerr.Exhausted, "%d bytes of requests wait for the broker already: retry after a pause", waiting)
	}
	for c.lastID++; c.calls[c.lastID] != nil; c.lastID++ {
	}
	c.calls[c.lastID] = call
	call.message.kind, call.id, call.op, call.class, call.deadline = kindRequest, c.lastID, call.Op, call.Class, call.Deadline
	call.place = -1
	if !call.Deadline.IsZero() {
		c.deadlines.add(call)
		c.wakeBy(call.Deadline)
	}
	c.out.put(&call.message)
	c.n.Requests.Add(1)
	c.work.Signal()
	return nil
}

var (
	timeout  = mqerr.New(mqerr.Timeout, "the deadline passed before the request was sent to the broker")
	expired  = mqerr.New(mqerr.UnknownOutcome, "the broker has not answered within the deadline")
	draining = mqerr.New(mqerr.Draining, "the broker is going away")
)

func unsent(err error) error {
	return mqerr.New(mqerr.Unavailable, "no connection to the broker: %w", err)
}

// Abandon completes a call that nobody waits for any more, if it has not ended: with notSent if the
// request surely was not sent, else with sent.
func (c *Client) Abandon(call *Call, notSent, sent error) {
	c.mu.Lock()
	err := notSent
	if call.started {
		err = sent
	}
	ok := c.abandon(call)
	c.mu.Unlock()
	if ok {
		call.To.Fail(err)
	}
}

// abandon ends a call before its answer has come, and tells whether that was still possible. The
// mutex is held.
func (c *Client) abandon(call *Call) bool {
	if call.ended {
		return false
	}
	call.ended = true
	c.n.Expired.Add(1)
	c.deadlines.remove(call)
	c.out.drop(&call.message)
	call.Parts, call.parts = nil, nil
	if !call.started {
		delete(c.calls, call.id)
		return true
	}
	c.out.cancels = append(c.out.cancels, call.id)
	c.work.Signal()
	return true
}

// Return gives the credit of an answer back that was kept.
func (c *Client) Return(class Class, size int) {
	c.mu.Lock()
	c.giveBack(class, size)
	c.gate(class)
	c.mu.Unlock()
}

func (c *Client) due(now time.Time) (func(), time.Time) {
	var late []*Call
	for len(c.deadlines) > 0 && !now.Before(c.deadlines[0].Deadline) {
		call := c.deadlines[0]
		c.abandon(call)
		late = append(late, call)
	}
	next := c.deadlines.earliest()
	if late == nil {
		return nil, next
	}
	return func() {
		for _, call := range late {
			if call.started { // fixed once the call is abandoned
				call.To.Fail(expired)
			} else {
				call.To.Fail(timeout)
			}
		}
	}, next
}

func (c *Client) events(dst []byte, _ int) ([]byte, bool) { return dst, false }

func (c *Client) copied([]*message) {}

// quiet tells a draining server that no more requests come, once all that had begun are sent.
func (c *Client) quiet() (bool, error) {
	if !c.draining || c.last {
		return false, nil
	}
	c.last, c.out.goaway = true, true
	return true, nil
}

func (c *Client) end(err error) {
	c.mu.Lock()
	var open []*Call
	for _, call := range c.calls {
		if !call.ended {
			call.ended = true
			open = append(open, call)
		}
	}
	c.calls, c.deadlines = nil, nil
	c.mu.Unlock()
	c.n.Cut.Add(int64(len(open)))
	for _, call := range open {
		if call.started {
			call.To.Fail(mqerr.New(mqerr.UnknownOutcome, "the connection to the broker broke before the answer came: %w", err))
		} else {
			call.To.Fail(unsent(err))
		}
	}
	if c.down != nil {
		c.down(err)
	}
}
