package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/perigee-mq/perigee/internal/vfs"
	"github.com/perigee-mq/perigee/store/commitlog"
	"github.com/perigee-mq/perigee/store/record"
)

// Marker is what a clean stop leaves: the incarnation that stopped, and the log's end as it was then.
type Marker struct {
	Incarnation uint64     `json:"incarnation"`
	End         record.Pos `json:"end"`
	Last        record.Pos `json:"last"` // position of the newest record, -1 if the run that stopped knew of none
	CRC         uint32     `json:"crc"`  // its checksum
	Sum         string     `json:"sum"`  // of what stands before, see sum
}

// sum is the CRC32C of the numbers in their decimal form, with a space between, in hex: a marker with a
// changed digit would accuse the log.
func (m *Marker) sum() string {
	b := fmt.Appendf(nil, "%d %d %d %d", m.Incarnation, m.End, m.Last, m.CRC)
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

// readMarker reads the marker of a clean stop. A damaged one counts as none.
func readMarker(f vfs.FS, dir string) (*Marker, error) {
	b, err := vfs.ReadFile(f, filepath.Join(dir, cleanName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeMarker(b), nil
}

// Tail is the end of a directory's log as the marker of a clean stop vouches for it, zero if there is none.
func Tail(f vfs.FS, dir string) (commitlog.Tail, error) {
	m, err := readMarker(f, dir)
	return m.tail(), err
}

// dropMarker removes the marker durably, before anything is appended: it must not vouch for a later end.
func dropMarker(f vfs.FS, dir string) error {
	err := f.Remove(filepath.Join(dir, cleanName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.SyncDir(dir)
}

// tail is what the marker vouches for, zero for none.
func (m *Marker) tail() commitlog.Tail {
	if m == nil {
		return commitlog.Tail{}
	}
	return commitlog.Tail{End: m.End, Last: commitlog.Last{Pos: m.Last, CRC: m.CRC}}
}

func decodeMarker(b []byte) *Marker {
	m := &Marker{Last: -1}
	if json.Unmarshal(b, m) != nil || m.Last >= m.End || m.Sum != m.sum() {
		return nil
	}
	return m
}

func (m Marker) write(f vfs.FS, path string) error {
	m.Sum = m.sum()
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
