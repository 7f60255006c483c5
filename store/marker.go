package store

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/record"
)

// Marker is what a clean stop leaves: the incarnation that stopped, and the log's end as it was then.
type Marker struct {
	Incarnation uint64     `json:"incarnation"`
	End         record.Pos `json:"end"`
	Last        record.Pos `json:"last"` // position of the newest record, -1 for none
	CRC         uint32     `json:"crc"`  // its checksum
}

// takeMarker reads the marker of a clean stop and removes it durably, before anything is appended:
// it must not vouch for a later end. A damaged one counts as none.
func takeMarker(f vfs.FS, dir string) (*Marker, error) {
	path := filepath.Join(dir, cleanName)
	b, err := vfs.ReadFile(f, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := f.Remove(path); err != nil {
		return nil, err
	}
	if err := f.SyncDir(dir); err != nil {
		return nil, err
	}
	m := new(Marker)
	if json.Unmarshal(b, m) != nil {
		return nil, nil
	}
	return m, nil
}

func (m Marker) write(f vfs.FS, path string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return vfs.ReplaceFile(f, path, append(b, '\n'))
}

// Clean reports whether the last run stopped cleanly and the log ends where it did then. Ask after
// Recover.
func (s *Store) Clean() bool {
	return s.clean != nil && s.clean.End == s.log.Written()
}
