package store

import (
	"encoding/json"
	"errors"
	"io/fs"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// promise is what a replica must not forget: the highest epoch that it has seen, and its last
// incarnation.
type promise struct {
	Epoch       record.Epoch `json:"epoch"`
	Incarnation uint64       `json:"incarnation"`
	// Replicated says that other replicas count for what this one has acknowledged, so that the end of its log may not
	// be so.
	Replicated bool `json:"replicated,omitempty"`
}

// promiseFile is the content of the file; one of a release before it had a checksum has none.
type promiseFile struct {
	promise
	Sum string `json:"sum,omitempty"`
}

func (p promise) sum() string {
	if p.Replicated {
		return sumOf("%d %d replicated", p.Epoch, p.Incarnation)
	}
	return sumOf("%d %d", p.Epoch, p.Incarnation)
}

func readPromise(f vfs.FS, path string) (promise, error) {
	var p promise
	b, err := vfs.ReadFile(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	var in promiseFile
	if err == nil {
		err = json.Unmarshal(b, &in)
	}
	p = in.promise
	if err == nil && in.Sum != "" && in.Sum != p.sum() {
		err = errSum
	}
	if err != nil {
		return p, mqerr.New(mqerr.Corrupt, "%s is damaged (%w): restore it from a backup; without it this replica may serve an epoch that is over", path, err)
	}
	return p, nil
}

// Promise makes durable that this replica has seen an epoch and runs as an incarnation. One that is
// lower than before is Fenced: it belongs to a past that is over.
func (s *Store) Promise(epoch record.Epoch, incarnation uint64) error {
	p := promise{Epoch: epoch, Incarnation: incarnation, Replicated: s.promise.Replicated}
	if epoch < s.promise.Epoch || incarnation < s.promise.Incarnation {
		return mqerr.New(mqerr.Fenced, "epoch %d and incarnation %d are over: %s has promised epoch %d and incarnation %d",
			epoch, incarnation, s.o.Dir, s.promise.Epoch, s.promise.Incarnation)
	}
	return s.keep(p)
}

// SetReplicated makes durable whether other replicas count for what is acknowledged from now on: before anything is
// appended that they have to have, and when they count no more.
func (s *Store) SetReplicated(yes bool) error {
	p := s.promise
	p.Replicated = yes
	return s.keep(p)
}

// Replicated tells what was said last; a new directory is alone.
func (s *Store) Replicated() bool { return s.promise.Replicated }

func (s *Store) keep(p promise) error {
	if p == s.promise {
		return nil
	}
	b, err := json.Marshal(promiseFile{p, p.sum()})
	if err != nil {
		return err
	}
	if err := vfs.ReplaceFile(s.o.FS, s.path(promiseName), append(b, '\n')); err != nil {
		return err
	}
	s.promise = p
	return nil
}

// Promised returns the highest epoch that this replica has seen and its last incarnation, 0 for none.
func (s *Store) Promised() (record.Epoch, uint64) { return s.promise.Epoch, s.promise.Incarnation }
