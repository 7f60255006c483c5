package store

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/mqerr"
	"github.com/perigee-mq/perigee/internal/vfs"
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

// identityFile is the content of the file; one of a release before it had a checksum has none.
type identityFile struct {
	Identity
	Sum string `json:"sum,omitempty"`
}

func (id Identity) sum() string {
	return sumOf("%d %x %q %q %d", id.Format, id.UUID[:], id.ClusterID, id.Shard, id.Replica)
}

// sumOf is the CRC32C of what a small file says, in hex: one digit that is another makes other sense.
func sumOf(format string, args ...any) string {
	return fmt.Sprintf("%08x", crc32.Checksum(fmt.Appendf(nil, format, args...), crc32.MakeTable(crc32.Castagnoli)))
}

var errSum = errors.New("its checksum is wrong")

// readIdentity reads the identity of a directory, or makes one for a new directory. A directory with a
// log and without an identity is nobody's: it is refused.
func readIdentity(f vfs.FS, dir string) (Identity, error) {
	path := filepath.Join(dir, identityName)
	b, err := vfs.ReadFile(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(f, dir)
	}
	if err != nil {
		return Identity{}, err
	}
	return decodeIdentity(b, path)
}

// IdentityOf reads the identity of a directory and changes nothing; fs.ErrNotExist if it has none.
func IdentityOf(f vfs.FS, dir string) (Identity, error) {
	path := filepath.Join(dir, identityName)
	b, err := vfs.ReadFile(f, path)
	if err != nil {
		return Identity{}, err
	}
	return decodeIdentity(b, path)
}

func newIdentity(f vfs.FS, dir string) (Identity, error) {
	id := Identity{Format: FormatVersion}
	if _, err := f.Stat(filepath.Join(dir, "VERSION")); err == nil {
		return id, mqerr.New(mqerr.Invalid, "data directory %s is a controller's, not a broker's: check --data-dir", dir)
	}
	names, err := f.List(filepath.Join(dir, LogDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if len(names) > 0 {
		return id, mqerr.New(mqerr.Corrupt, "%s holds a log but no %s, so it is not known whose it is: bring that file back from a copy, or start on an empty directory", dir, identityName)
	}
	rand.Read(id.UUID[:]) // never fails, see crypto/rand
	return id, id.write(f, filepath.Join(dir, identityName))
}

func decodeIdentity(b []byte, path string) (Identity, error) {
	var f identityFile
	err := json.Unmarshal(b, &f)
	id := f.Identity
	if err == nil && f.Sum != "" && f.Sum != id.sum() {
		err = errSum
	}
	if err != nil {
		return id, mqerr.New(mqerr.Corrupt, "%s is damaged (%w): bring it back from a copy, or start on an empty directory", path, err)
	}
	switch {
	case id.Format > FormatVersion:
		return id, mqerr.New(mqerr.Unsupported, "%s has format %d, this release knows up to %d: start the release of perigee that wrote it, or a later one", path, id.Format, FormatVersion)
	case id.Format < 1 || id.UUID == UUID{}:
		return id, mqerr.New(mqerr.Corrupt, "%s has format %d and identity %x: bring it back from a copy, or start on an empty directory", path, id.Format, id.UUID)
	}
	return id, nil
}

func (id Identity) write(f vfs.FS, path string) error {
	b, err := json.MarshalIndent(identityFile{id, id.sum()}, "", "  ")
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
	if err := id.bound(s.o.Dir, clusterID, shard, replica); err != nil {
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

func (id Identity) bound(dir, clusterID, shard string, replica uint32) error {
	switch {
	case id.ClusterID != "" && id.ClusterID != clusterID:
		return mqerr.New(mqerr.Invalid, "data directory %s belongs to cluster %s, the controller leads cluster %s: check --controller and --data-dir", dir, id.ClusterID, clusterID)
	case id.Shard != "" && (id.Shard != shard || id.Replica != replica):
		return mqerr.New(mqerr.Invalid, "data directory %s belongs to replica %d of broker group %s, not to replica %d of %s: check --data-dir, --group and --id",
			dir, id.Replica, id.Shard, replica, shard)
	}
	return nil
}
