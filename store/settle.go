package store

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/perigee-mq/perigee/store/checkpoint"
)

// settle is called when the log is found to be well and before anything is changed: a start that is
// refused costs nothing that another one may need. The marker of a clean stop goes, and damaged checkpoints
// are set aside, so that they are neither met again nor kept instead of good ones.
func (s *Store) settle() error {
	if s.judge != nil {
		if err := s.judge(); err != nil {
			return err
		}
	}
	for _, d := range s.aside {
		if err := checkpoint.SetAside(s.o.FS, s.path(CheckpointDir), d.Name); err != nil {
			return err
		}
	}
	s.tellAside()
	return dropMarker(s.o.FS, s.o.Dir)
}

// Judge has fn asked when the log is found to be well and before anything is changed: its error refuses the start.
func (s *Store) Judge(fn func() error) { s.judge = fn }

// tellAside reports the checkpoints that were set aside.
func (s *Store) tellAside() {
	for _, d := range s.aside {
		s.o.Log.LogAttrs(context.Background(), slog.LevelWarn, "checkpoint cannot be used and was set aside: this start reads more of the log; check the disk if the file was not put there by hand",
			slog.String("file", filepath.Join(s.path(CheckpointDir), d.Name)), slog.String("error", d.Err.Error()))
	}
	s.setAside.Add(int64(len(s.aside)))
	s.aside = nil
}
