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
	Last        record.Pos `json:"last"` // position of the newest record, -1 if the run that stopped knew of none
	CRC         uint32     `json:"crc"`  // its checksum
}

// takeMarker reads the marker of a clean stop and removes it durably, before anything is appended: it
// must not vouch for a later end. A damaged one counts as none.
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
	return decodeMarker(b), nil
}

func decodeMarker(b []byte) *Marker {
	m := &Marker{Last: -1}
	if json.Unmarshal(b, m) != nil || m.Last >= m.End {
		return nil
	}
	return m
}

func (m Marker) write(f vfs.FS, path string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return vfs.ReplaceFile(f, path, append(b, '\n'))
}

// Clean reports whether the last run stopped cleanly and the log is as it was then: it ends at the same
// position, with the same record. Ask after Recover and before anything is appended.
func (s *Store) Clean() bool {
	m := s.clean
	if m == nil || m.End != s.log.Written() {
		return false
	}
	if m.Last < 0 {
		return true
	}
	r, ref, err := s.log.Read(m.Last, uint32(m.End-m.Last))
	if err != nil {
		return false
	}
	defer ref.Release()
	return r.CRC == m.CRC
}
