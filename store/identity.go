package store

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// FormatVersion is the version of the directory's layout.
const FormatVersion = 1

// UUID is the identity of a data directory.
type UUID [16]byte

// MarshalText returns the identity in hex.
func (u UUID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(u[:])), nil }

// UnmarshalText reads an identity in hex.
func (u *UUID) UnmarshalText(b []byte) error {
	if len(b) != 2*len(u) {
		return fmt.Errorf("an identity has %d hex digits, not %d", 2*len(u), len(b))
	}
	_, err := hex.Decode(u[:], b)
	return err
}

// Identity says whose directory it is.
type Identity struct {
	Format    int    `json:"format"`
	UUID      UUID   `json:"uuid"`       // made with the directory
	ClusterID string `json:"cluster_id"` // "" before it joined a cluster
	Shard     string `json:"shard"`      // name of the broker group, "" before
	Replica   uint32 `json:"replica"`    // 0 before
}

// readIdentity reads the identity of a directory, or makes one for a new directory.
func readIdentity(f vfs.FS, path string) (Identity, error) {
	var id Identity
	b, err := vfs.ReadFile(f, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		id.Format = FormatVersion
		rand.Read(id.UUID[:]) // never fails, see crypto/rand
		return id, id.write(f, path)
	case err != nil:
		return id, err
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return id, mqerr.New(mqerr.Corrupt, "%s is damaged (%v): restore it from a backup, or start on a new directory", path, err)
	}
	if id.Format != FormatVersion {
		return id, mqerr.New(mqerr.Unsupported, "%s has format %d, this release knows format %d: start the release of perigee that wrote it", path, id.Format, FormatVersion)
	}
	return id, nil
}

func (id Identity) write(f vfs.FS, path string) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return vfs.ReplaceFile(f, path, append(b, '\n'))
}

// Identity says whose directory it is.
func (s *Store) Identity() Identity { return s.identity }

// Bind gives a new directory to a replica of a cluster, and refuses another one's.
func (s *Store) Bind(clusterID, shard string, replica uint32) error {
	id := s.identity
	if err := id.fits(s.o.Dir, clusterID, shard, replica); err != nil {
		return err
	}
	id.ClusterID, id.Shard, id.Replica = clusterID, shard, replica
	if id == s.identity {
		return nil
	}
	if err := id.write(s.o.FS, s.path(identityName)); err != nil {
		return err
	}
	s.identity = id
	return nil
}

func (id Identity) fits(dir, clusterID, shard string, replica uint32) error {
	switch {
	case id.ClusterID != "" && id.ClusterID != clusterID:
		return mqerr.New(mqerr.Invalid, "data directory %s belongs to cluster %s, the controller leads cluster %s: check --controller and --data-dir", dir, id.ClusterID, clusterID)
	case id.Shard != "" && (id.Shard != shard || id.Replica != replica):
		return mqerr.New(mqerr.Invalid, "data directory %s belongs to replica %d of broker group %s, not to replica %d of %s: check --data-dir, --group and --id",
			dir, id.Replica, id.Shard, replica, shard)
	}
	return nil
}

// promise is what a replica must not forget: the highest epoch that it has seen, and its last
// incarnation.
type promise struct {
	Epoch       record.Epoch `json:"epoch"`
	Incarnation uint64       `json:"incarnation"`
}

func readPromise(f vfs.FS, path string) (promise, error) {
	var p promise
	b, err := vfs.ReadFile(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, mqerr.New(mqerr.Corrupt, "%s is damaged (%w): restore it from a backup; without it this replica may serve an epoch that is over", path, err)
	}
	return p, nil
}

// Promise makes durable that this replica has seen an epoch and runs as an incarnation. Both only
// grow.
func (s *Store) Promise(epoch record.Epoch, incarnation uint64) error {
	p := promise{Epoch: max(epoch, s.promise.Epoch), Incarnation: max(incarnation, s.promise.Incarnation)}
	b, err := json.Marshal(p)
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
