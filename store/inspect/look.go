package inspect

import (
	"path/filepath"
	"strings"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Quick is what a quick look has found.
type Quick struct {
	End        record.Pos
	Checkpoint record.Pos // -1: none
	// Faults are what is wrong in the checkpoints and in the newest records.
	Faults []string
	// Leftovers are files that nothing uses: half-written ones, and checkpoints that a start has set aside.
	Leftovers []string
}

// Look reads the checkpoints, and the log behind the newest of them or, if that is more, its newest file.
// Check reads everything.
func (d *Dir) Look() (*Quick, error) {
	q := &Quick{Checkpoint: -1}
	from := d.log.First()
	segments, err := d.segments()
	if err != nil {
		return nil, err
	}
	promised, err := d.log.Promised()
	if err != nil {
		return nil, err
	}
	for _, base := range segments { // in order; the last ones may only be prepared
		if base < promised {
			from = base
		}
	}
	newest, damaged, err := d.checkpoints()
	if err != nil {
		q.Faults = append(q.Faults, err.Error())
	}
	for _, f := range damaged {
		q.Faults = append(q.Faults, "checkpoint "+f.Name+": "+f.Err.Error()+"; the next start uses an older one")
	}
	if newest != nil {
		q.Checkpoint = newest.Pos
		from = max(from, newest.Pos)
	}
	tail, err := d.past(from, func(record.Record) error { return nil }, func(commitlog.Past) error { return nil })
	if err != nil {
		return nil, err
	}
	if q.End = tail.End; tail.Damage != nil {
		q.Faults = append(q.Faults, tail.Damage.Error())
	}
	return q, d.leftovers(q)
}

func (d *Dir) leftovers(q *Quick) error {
	for _, sub := range []string{"", store.LogDir, store.QueueDir, store.IndexDir, store.DedupDir, store.CheckpointDir} {
		names, err := d.fs.List(filepath.Join(d.path, sub))
		if err != nil && sub != "" {
			continue // made by a start when it is needed
		}
		if err != nil {
			return err
		}
		for _, n := range names {
			if strings.HasSuffix(n, vfs.TempSuffix) || sub == store.CheckpointDir && n == checkpoint.AsideName {
				q.Leftovers = append(q.Leftovers, filepath.Join(sub, n))
			}
		}
	}
	return nil
}
