package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/record"
)

// Stage is a part of a recovery.
type Stage uint32

// Stages, in their order.
const (
	StageWaiting    Stage = iota // it has not begun
	StageCheckpoint              // the views are read from the newest checkpoint
	StageLog                     // the log behind it is replayed
	StageDone                    // the views are those of the log
)

var stageNames = [...]string{"waiting", "checkpoint", "log", "done"}

func (s Stage) String() string { return stageNames[s] }

// Recovery lets others watch, and stop, what Open does. The zero value is ready. Its methods are safe for
// concurrent use.
type Recovery struct {
	stage    atomic.Uint32
	stopped  atomic.Bool
	from, at atomic.Int64
	to       atomic.Int64
	records  atomic.Int64
	began    atomic.Int64 // of the stage, ns since 1970
}

// Progress is how far a recovery has come. Of one that is over it tells what was read.
type Progress struct {
	Stage   Stage
	From    record.Pos // the replay began here: position of a checkpoint, or of the first record
	At      record.Pos // everything below was replayed
	To      record.Pos // the log ends here or a little later; 0 if it is not known yet
	Records int64      // that were replayed
	Took    time.Duration
}

// Stop ends a recovery that is under way: Open returns an error of kind Cancelled. The directory stays as
// it is.
func (r *Recovery) Stop() { r.stopped.Store(true) }

// Progress tells how far the recovery has come.
func (r *Recovery) Progress() Progress {
	p := Progress{
		Stage: Stage(r.stage.Load()), From: record.Pos(r.from.Load()), At: record.Pos(r.at.Load()), To: record.Pos(r.to.Load()), Records: r.records.Load(),
	}
	p.To = max(p.To, p.At)
	if began := r.began.Load(); began > 0 {
		p.Took = time.Since(time.Unix(0, began))
	}
	return p
}

// Bytes is how much log was replayed.
func (p Progress) Bytes() int64 { return int64(p.At - p.From) }

// Left is how much log is surely left to replay.
func (p Progress) Left() int64 { return int64(max(0, p.To-p.At)) }

// Percent is how much of the log was replayed, 100 if nothing is left.
func (p Progress) Percent() int {
	if p.Left() == 0 {
		return 100
	}
	return int(100 * p.Bytes() / int64(p.To-p.From))
}

// Rate is bytes of log per second.
func (p Progress) Rate() int64 {
	if p.Took <= 0 {
		return 0
	}
	return int64(float64(p.Bytes()) / p.Took.Seconds())
}

// Err says to people how far a recovery has come; nil if it is over.
func (p Progress) Err() error {
	switch p.Stage {
	case StageDone:
		return nil
	case StageLog:
		return fmt.Errorf("the broker is recovering its log: %d%%, %d records and %d bytes replayed, at least %d bytes left", p.Percent(), p.Records, p.Bytes(), p.Left())
	}
	return fmt.Errorf("the broker is recovering: stage %s", p.Stage)
}

func (r *Recovery) begin(s Stage) {
	r.stage.Store(uint32(s))
	r.began.Store(time.Now().UnixNano())
}

// replaying notes where a replay begins and where the log surely goes to.
func (r *Recovery) replaying(from, to record.Pos) {
	r.from.Store(int64(from))
	r.at.Store(int64(from))
	r.to.Store(int64(to))
	r.records.Store(0)
	r.begin(StageLog)
}

// step notes that everything below a position was replayed.
func (r *Recovery) step(at record.Pos) error {
	if r.stopped.Load() {
		return errStopped
	}
	r.at.Store(int64(at))
	r.records.Add(1)
	return nil
}

var errStopped = mqerr.New(mqerr.Cancelled, "the recovery was stopped; the next start begins it again")

// over notes what was replayed up to the end of the log.
func (r *Recovery) over(end record.Pos) {
	r.at.Store(int64(end))
	r.to.Store(int64(end))
	r.stage.Store(uint32(StageDone))
}

// recoveryPause is the time between two lines of log about a recovery.
const recoveryPause = 3 * time.Second

// watch writes a line of log every few seconds until the returned function is called.
func (r *Recovery) watch(log *slog.Logger) (end func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(recoveryPause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.Progress().report(log)
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

func (p Progress) report(log *slog.Logger) {
	attrs := []slog.Attr{slog.String("stage", p.Stage.String())}
	if p.Stage == StageLog {
		attrs = append(attrs, slog.Int("percent", p.Percent()), slog.Int64("records", p.Records), slog.Int64("bytes", p.Bytes()),
			slog.Int64("bytes_per_second", p.Rate()), slog.Int64("bytes_left", p.Left()))
		if rate := p.Rate(); rate > 0 {
			attrs = append(attrs, slog.Duration("left", time.Duration(float64(p.Left())/float64(rate)*float64(time.Second)).Round(time.Second)))
		}
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "recovering", attrs...)
}
