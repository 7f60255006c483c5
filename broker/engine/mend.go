package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/queue"
	"github.com/perigee-mq/perigee/store/record"
)

// mender gives consume queues back what their files have lost, from the log, beside the writer: whoever reads an extent
// that is damaged rings it. It has one goroutine while there is something to do.
type mender struct {
	e    *Engine
	ctx  context.Context
	quit context.CancelFunc
	work sync.WaitGroup
	one  sync.Mutex // a queue is being mended

	mu     sync.Mutex
	open   bool // between start and stop
	busy   bool // the goroutine runs
	wait   map[queue.Key]record.QueueOffset
	failed map[queue.Key]failedMend
}

// failedMend is why a queue could not be mended, and until when nobody tries again.
type failedMend struct {
	err   error
	until time.Time
}

const (
	mendPause   = time.Minute // until a queue that could not be mended is looked at again
	mendExtents = 1024        // of one queue that one pass over the log looks after
)

func (m *mender) init(e *Engine) {
	m.e, m.wait, m.failed = e, map[queue.Key]record.QueueOffset{}, map[queue.Key]failedMend{}
	m.ctx, m.quit = context.WithCancel(context.Background())
}

func (m *mender) start() {
	m.mu.Lock()
	m.open = true
	m.mu.Unlock()
	m.e.o.Store.Queues().Watch(m.ring)
}

// stop ends what is under way; what is not mended by then is met again.
func (m *mender) stop() {
	m.mu.Lock()
	m.open = false
	m.mu.Unlock()
	m.quit()
	m.work.Wait()
}

// ring has an extent looked after. It never waits.
func (m *mender) ring(d queue.Damage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, gaveUp := m.failure(d.Key); !m.open || gaveUp {
		return
	}
	if at, is := m.wait[d.Key]; !is || d.First < at {
		m.wait[d.Key] = d.First
	}
	if !m.busy {
		m.busy = true
		m.work.Go(m.run)
	}
}

// failure is why a queue cannot be mended for now. The caller has mu.
func (m *mender) failure(k queue.Key) (error, bool) {
	f, is := m.failed[k]
	if is && time.Now().After(f.until) {
		delete(m.failed, k)
		is = false
	}
	return f.err, is
}

// hopeless tells whether a damaged queue stays so for now.
func (m *mender) hopeless(k queue.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, is := m.failure(k)
	return is
}

func (m *mender) run() {
	for {
		m.mu.Lock()
		var d queue.Damage
		for d.Key, d.First = range m.wait {
			break
		}
		if m.busy = len(m.wait) > 0 && m.open; !m.busy {
			m.mu.Unlock()
			return
		}
		delete(m.wait, d.Key)
		m.mu.Unlock()
		_ = m.mend(m.ctx, d) // it has told
	}
}

// mend gives a queue back what cannot be read from an extent on. What it cannot give is tried again after a pause.
func (m *mender) mend(ctx context.Context, d queue.Damage) error {
	m.one.Lock()
	defer m.one.Unlock()
	m.mu.Lock()
	err, gaveUp := m.failure(d.Key)
	m.mu.Unlock()
	if gaveUp {
		return err
	}
	p := pass{e: m.e, key: d.Key}
	err = p.run(ctx, d.First)
	attrs := []slog.Attr{slog.Int("topic_id", int(d.Key.Topic)), slog.Int("queue", int(d.Key.Queue)), slog.Int64("from_offset", int64(d.First))}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if p.mended > 0 {
		m.e.counts.Mended.Add(int64(p.mended))
		m.e.o.Log.LogAttrs(ctx, slog.LevelWarn, "a consume queue could not be read in part and was rebuilt from the log, nothing is lost; check the disk", append(slices.Clip(attrs), slog.Int("extents", p.mended))...)
	}
	if err != nil {
		m.mu.Lock()
		m.failed[d.Key] = failedMend{err, time.Now().Add(mendPause)}
		m.mu.Unlock()
		attrs = append(attrs, slog.String("error", err.Error()))
		if errors.Is(err, errUnlike) {
			if err := m.e.o.Store.Distrust(); err != nil {
				attrs = append(attrs, slog.String("giving_up_checkpoints", err.Error()))
			}
			m.e.o.Log.LogAttrs(ctx, slog.LevelError, "a consume queue cannot be read in part, and the log does not have what was in it; restart the broker, which rebuilds all views, and check the disk", attrs...)
			return err
		}
		m.e.o.Log.LogAttrs(ctx, slog.LevelError, "a consume queue cannot be read in part and could not be rebuilt from the log: its messages there wait, it is tried again each minute; check the disk, and run perigee debug repair if the log is damaged", attrs...)
	}
	return err
}

// errUnlike says that queue and log do not go together.
var errUnlike = mqerr.New(mqerr.Corrupt, "the log does not say what was in the queue")

// pass is one reading of the log for entries of a queue.
type pass struct {
	e      *Engine
	key    queue.Key
	parts  []queue.Part
	found  [][]queue.Entry // of each part, with position -1 where none was found
	left   int             // not found yet
	holes  []commitlog.Past
	lost   bool // some of what was not found is that of lost messages by now
	mended int  // extents
}

func (p *pass) run(ctx context.Context, first record.QueueOffset) error {
	queues := p.e.o.Store.Queues()
	if p.parts = queues.Unreadable(p.key, first, mendExtents); len(p.parts) == 0 {
		return nil
	}
	for _, part := range p.parts {
		entries := make([]queue.Entry, part.Hi-part.Lo)
		for i := range entries {
			entries[i].Pos = -1
		}
		p.found, p.left = append(p.found, entries), p.left+len(entries)
	}
	at, err := p.before(p.parts[0].Lo)
	if err == nil {
		err = p.read(ctx, at)
	}
	if err == nil && p.left > 0 {
		err = p.lose(at)
	}
	for i, entries := range p.found { // those that are whole, whatever is with others
		if slices.ContainsFunc(entries, func(e queue.Entry) bool { return e.Pos < 0 }) {
			continue
		}
		done, failed := queues.Mend(p.key, p.parts[i], entries, p.lost)
		if done && failed == nil {
			p.mended++
		}
		err = errors.Join(err, failed)
	}
	return err
}

// before is the store time of the entry before an offset, 0 if it is not known.
func (p *pass) before(off record.QueueOffset) (int64, error) {
	queues := p.e.o.Store.Queues()
	if lo, _ := queues.Bounds(p.key); off <= lo {
		return 0, nil
	}
	e, err := queues.At(p.key, off-1)
	if _, damaged := queue.DamageOf(err); damaged || gone(err) {
		return 0, nil
	}
	return e.Time, err
}

// read looks for the entries in the records that gave them their places, none of which is older than a time.
func (p *pass) read(ctx context.Context, at int64) error {
	from := p.e.log.First()
	for _, s := range p.e.log.Segments() {
		if s.FirstTime >= 0 && s.FirstTime < at {
			from = s.Base
		}
	}
	f := filling{v: &p.e.views, wants: p.wants, put: p.put, lost: func() {}}
	began := time.Now()
	_, _, err := p.e.log.ScanPast(from, func(r record.Record) error {
		if p.left == 0 {
			return errEnd
		}
		if err := p.e.pace(ctx, began, int64(r.Pos-from)); err != nil {
			return err
		}
		return f.take(&r)
	}, func(h commitlog.Past) error {
		p.e.past(h)
		p.holes = append(p.holes, h)
		return nil
	})
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}

func (p *pass) place(off record.QueueOffset) *queue.Entry {
	for i, part := range p.parts {
		if off >= part.Lo && off < part.Hi {
			return &p.found[i][off-part.Lo]
		}
	}
	return nil
}

func (p *pass) wants(k queue.Key, off record.QueueOffset) bool {
	return k == p.key && p.place(off) != nil
}

func (p *pass) put(_ queue.Key, off record.QueueOffset, e queue.Entry) error {
	if to := p.place(off); to.Pos < 0 {
		*to = e
		p.left--
	}
	return nil
}

// lose makes entries that were not found those of lost messages, if the log has a part that is lost for good and may
// have had them. at is the store time of the entry before.
func (p *pass) lose(at int64) error {
	if len(p.holes) == 0 {
		return errUnlike
	}
	for _, h := range p.holes {
		if !h.Known && !p.e.o.SkipDamage {
			return mqerr.New(mqerr.Corrupt, "the log is damaged, too, where it said what was in the queue: %s: %s", h.Hole, h.Why)
		}
	}
	p.lost = true
	for _, entries := range p.found {
		for i := range entries {
			if entries[i].Pos < 0 {
				entries[i] = queue.Entry{Pos: p.holes[len(p.holes)-1].From, Time: at}
			}
			at = max(at, entries[i].Time)
		}
	}
	return nil
}

// mending does something again when what it could not read of a consume queue is mended.
func (e *Engine) mending(ctx context.Context, do func() error) error {
	var last queue.Damage
	for {
		err := do()
		d, is := queue.DamageOf(err)
		if !is || d.Key == last.Key && d.First == last.First || e.mender.mend(ctx, *d) != nil {
			return err
		}
		last = *d
	}
}
