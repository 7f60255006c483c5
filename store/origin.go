package store

import (
	"encoding/json"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/checkpoint"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// originSection is the section of a checkpoint that says of which log it is.
const originSection = "log"

// origin ties a checkpoint to its log: the directory that the log is in, and the record that was its last one. Its
// checksum covers its position, epoch and time, so that no other log has the same one there.
type origin struct {
	Format    int          `json:"format"`
	UUID      UUID         `json:"uuid"`
	ClusterID string       `json:"cluster_id"` // this and the next two are for people
	Shard     string       `json:"shard"`
	Replica   uint32       `json:"replica"`
	Last      record.Pos   `json:"last"`
	Epoch     record.Epoch `json:"epoch"`
	CRC       uint32       `json:"crc"`
}

const originFormat = 1

func (id *Identity) origin(t commitlog.Tail) (checkpoint.Section, error) {
	if t.Pos < 0 || t.Pos >= t.End {
		return checkpoint.Section{}, mqerr.New(mqerr.Internal, "a checkpoint at %d of a log whose last record is not known", t.End)
	}
	b, err := json.Marshal(origin{
		Format: originFormat, UUID: id.UUID, ClusterID: id.ClusterID, Shard: id.Shard, Replica: id.Replica, Last: t.Pos, Epoch: t.Epoch, CRC: t.CRC,
	})
	return checkpoint.Section{Name: originSection, Data: b}, err
}

// originOf reads where a checkpoint comes from. Those of releases before it said so are Corrupt: nobody knows.
func originOf(c *checkpoint.Checkpoint) (o origin, end commitlog.Tail, err error) {
	b, err := c.Section(originSection)
	if err != nil {
		return o, end, err
	}
	if err := json.Unmarshal(b, &o); err != nil || o.Format < 1 || o.Last < 0 || o.Last >= c.Pos {
		return o, end, mqerr.New(mqerr.Corrupt, "it does not say of which log it is")
	}
	if o.Format > originFormat {
		return o, end, mqerr.New(mqerr.Unsupported, "its section %q has format %d, this release knows %d: start the release of perigee that wrote it", originSection, o.Format, originFormat)
	}
	return o, commitlog.Tail{End: c.Pos, Last: commitlog.Last{Pos: o.Last, Epoch: o.Epoch, CRC: o.CRC}}, nil
}

// fits refuses a checkpoint that is not of this directory and log. One whose place in the log is damaged or missing
// passes: it may well be the log that is wrong, and Recover tells.
func (id *Identity) fits(c *checkpoint.Checkpoint, log *commitlog.Log) error {
	if first := log.First(); c.Pos < first {
		return mqerr.New(mqerr.Corrupt, "it stands for position %d, and the log begins at %d", c.Pos, first)
	}
	o, end, err := originOf(c)
	if err != nil {
		return err
	}
	if o.UUID != id.UUID {
		return mqerr.New(mqerr.Corrupt, "it is of another data directory (%x: cluster %q, broker group %q, replica %d)", o.UUID, o.ClusterID, o.Shard, o.Replica)
	}
	is, err := log.Stands(end)
	if err == nil && is == commitlog.Replaced {
		err = mqerr.New(mqerr.Corrupt, "it is of another log: that had the record %08x of epoch %d at position %d, this one has not", o.CRC, o.Epoch, o.Last)
	}
	return err
}

// Checkpoints returns the newest checkpoint of a directory that can be used with its log, nil if there is none,
// and the newer ones that cannot. An error is of the disk, or says that a later release wrote the directory.
func Checkpoints(f vfs.FS, dir string, log *commitlog.Log) (*checkpoint.Checkpoint, []checkpoint.Damaged, error) {
	id, err := IdentityOf(f, dir)
	if err != nil {
		return nil, nil, err
	}
	return id.checkpoints(f, dir, log)
}

func (id *Identity) checkpoints(f vfs.FS, dir string, log *commitlog.Log) (*checkpoint.Checkpoint, []checkpoint.Damaged, error) {
	return checkpoint.Load(f, filepath.Join(dir, CheckpointDir), func(c *checkpoint.Checkpoint) error { return id.fits(c, log) })
}

// loadCheckpoint takes the newest checkpoint that can be used. Those that cannot are set aside when the log is found
// to be well.
func (s *Store) loadCheckpoint() (err error) {
	if s.checkpoint, s.aside, err = s.identity.checkpoints(s.o.FS, s.o.Dir, s.log); err != nil || s.checkpoint == nil {
		return err
	}
	_, end, err := originOf(s.checkpoint)
	if err != nil {
		return err
	}
	s.saved = s.checkpoint.Pos
	s.log.Expect(end)
	return nil
}
