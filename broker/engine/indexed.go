package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/index"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// sectionIndex is the section of a checkpoint with the index.
const sectionIndex = index.Section

// indexed is the view that finds messages by key and id.
type indexed struct {
	*index.Store
	hashes []uint64 // memory of the last message's
}

// add notes what a message that was stored at pos is found by.
func (x *indexed) add(pos record.Pos, at int64, m *record.Msg) {
	x.hashes = index.Hashes(x.hashes[:0], m)
	x.Add(pos, at, x.hashes)
}

// settle writes files while a replay fills the index faster than anybody else would. What cannot be
// written is taken from the log again later.
func (x *indexed) settle() {
	for x.Backlog() > 1 {
		if _, err := x.Work(nil); err != nil {
			return
		}
	}
}

// encode is the section of a checkpoint.
func (x *indexed) encode() []byte { return x.Encode(nil) }

// indexer writes the files of the index beside the writer, and rebuilds those that are missing. It has one
// goroutine.
type indexer struct {
	e     *Engine
	store *index.Store
	log   *commitlog.Log
	rate  int64 // bytes of log per second that a rebuild reads
	warn  *slog.Logger
	quit  chan struct{}
	ended chan struct{}
}

// indexPause is how long the indexer waits after a failure.
const indexPause = 5 * time.Second

func (x *indexer) init(e *Engine) {
	x.e = e
	x.store, x.log, x.rate, x.warn = e.o.Store.Index(), e.log, e.o.IndexRate, e.o.Log
	x.quit, x.ended = make(chan struct{}), make(chan struct{})
}

// stop ends the goroutine. The files of runs that are in memory are written first if finish is set.
func (x *indexer) stop(finish bool) {
	close(x.quit)
	<-x.ended
	for finish && x.store.Backlog() > 0 {
		if _, err := x.store.Work(nil); err != nil {
			return // the next start takes them from the log
		}
	}
}

func (x *indexer) run() {
	defer close(x.ended)
	again := time.NewTimer(0)
	defer again.Stop()
	failed := false
	for {
		select {
		case <-x.quit:
			return
		case <-x.store.Waiting():
		case <-again.C:
		}
		err := x.work()
		if errors.Is(err, errQuit) {
			return
		}
		if err != nil {
			again.Reset(indexPause)
			if !failed {
				x.warn.LogAttrs(context.Background(), slog.LevelWarn, "the index cannot be written: it is tried again, meanwhile a search may be incomplete; check the disk",
					slog.String("error", err.Error()))
			}
		}
		failed = err != nil
	}
}

var (
	errQuit = errors.New("the engine stops")
	errLent = errors.New("the space that the disk has left is for retention")
)

// work works until nothing is left to do.
func (x *indexer) work() error {
	for {
		select {
		case <-x.quit:
			return errQuit
		default:
		}
		if x.e.o.Store.BallastLent() {
			return errLent
		}
		more, err := x.store.Work(x.read)
		if err != nil || !more {
			return err
		}
	}
}

// read reads the log, over what is damaged in it, at a bounded rate: the disk is there for messages in the first
// place.
func (x *indexer) read(from record.Pos, fn func(record.Record) error, past func() error) error {
	began, first := time.Now(), from
	_, _, err := x.log.ScanPast(from, func(r record.Record) error {
		due := time.Duration(float64(r.Pos-first) / float64(x.rate) * float64(time.Second))
		if ahead := due - time.Since(began); ahead > 10*time.Millisecond {
			pause := time.NewTimer(ahead)
			defer pause.Stop()
			select {
			case <-x.quit:
				return errQuit
			case <-pause.C:
			}
		}
		return fn(r)
	}, func(p commitlog.Past) error {
		x.e.past(p)
		return past()
	})
	return err
}

// Index returns the sizes of the index, for metrics and tests.
func (e *Engine) Index() index.Stats { return e.o.Store.Index().Stats() }

// Queues returns figures of the consume queues.
func (e *Engine) Queues() queue.Stats { return e.o.Store.Queues().Stats() }
