package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// Recorder takes down calls. It is safe for concurrent use.
type Recorder struct {
	began time.Time

	mu     sync.Mutex // guards what follows, and the calls that are under way
	ops    []*Op
	leases int
	done   int64
}

// NewRecorder begins a history.
func NewRecorder() *Recorder { return &Recorder{began: time.Now()} }

// Now is the time in the history.
func (r *Recorder) Now() Time { return Time(time.Since(r.began)) }

// TimeOf is a time of the wall clock as one in the history.
func (r *Recorder) TimeOf(t time.Time) Time { return Time(t.Round(0).Sub(r.began.Round(0))) }

// WallOf is the time of the wall clock.
func (r *Recorder) WallOf(t Time) time.Time { return r.began.Round(0).Add(time.Duration(t)) }

// Begin takes down a call before it is made.
func (r *Recorder) Begin(op *Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Began, op.Ended = r.Now(), Never
	r.ops = append(r.ops, op)
	return op
}

// End takes down what became of a call. change, which may be nil, notes what else is known.
func (r *Recorder) End(op *Op, o Outcome, code string, change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Ended, op.Outcome, op.Code = r.Now(), o, code
	if change != nil {
		change()
	}
	if o == OK {
		r.done += int64(max(1, len(op.Items)))
	}
}

// Came takes down a message that came in the answer to a call, and returns the number of its lease.
func (r *Recorder) Came(op *Op, it Item) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases++
	it.At, it.Lease = r.Now(), r.leases
	op.Items = append(op.Items, it)
	return it.Lease
}

// Done counts what was answered OK: messages, and calls without any.
func (r *Recorder) Done() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

// Snapshot returns the calls as they are now.
func (r *Recorder) Snapshot() []Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	ops := make([]Op, len(r.ops))
	for i, op := range r.ops {
		ops[i] = *op
		if op.Ended == Never {
			ops[i].Items = slices.Clone(op.Items)
		}
	}
	return ops
}

// Write writes calls, a line of JSON for each.
func Write(w io.Writer, ops []Op) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	for i := range ops {
		if err := e.Encode(&ops[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

// Read reads what Write wrote.
func Read(r io.Reader) (ops []Op, err error) {
	d := json.NewDecoder(r)
	for {
		var op Op
		switch err := d.Decode(&op); {
		case errors.Is(err, io.EOF):
			return ops, nil
		case err != nil:
			return nil, err
		}
		ops = append(ops, op)
	}
}
