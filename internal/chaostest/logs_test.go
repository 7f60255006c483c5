package chaostest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sameLogs compares the logs of a group's replicas, byte by byte, from where the last of them begins.
func (p *place) sameLogs(group string) error {
	var dirs []string
	for _, n := range p.replicasOf(group) {
		dirs = append(dirs, filepath.Join(p.data[n], "log"))
	}
	return sameFiles(dirs)
}

// sameFiles compares the segments in directories. One that others have not yet made has nothing in it.
func sameFiles(dirs []string) error {
	first, err := segments(dirs[0])
	if err != nil {
		return err
	}
	for _, dir := range dirs[1:] {
		other, err := segments(dir)
		if err != nil {
			return err
		}
		common := 0
		for name, b := range other {
			a, is := first[name]
			if !is {
				continue
			}
			common++
			if !bytes.Equal(a, b) {
				return fmt.Errorf("%s and %s differ in %s", dirs[0], dir, name)
			}
		}
		if common == 0 {
			return fmt.Errorf("%s and %s have no segment in common", dirs[0], dir)
		}
		if name := beyond(first, other) + beyond(other, first); name != "" {
			return fmt.Errorf("of %s and %s only one has anything in %s", dirs[0], dir, name)
		}
	}
	return nil
}

// beyond is a segment behind all of another log that is not empty.
func beyond(log, other map[string][]byte) string {
	last := slices.Max(slices.Collect(maps.Keys(other)))
	for name, b := range log {
		if name > last && len(bytes.Trim(b, "\x00")) > 0 {
			return name
		}
	}
	return ""
}

// segments are the files of a log by name.
func segments(dir string) (map[string][]byte, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "0") {
			continue
		}
		if out[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TestSameFiles shows that logs that differ are found.
func TestSameFiles(t *testing.T) {
	dir := func(files ...string) string {
		d := t.TempDir()
		for i := 0; i < len(files); i += 2 {
			require.NoError(t, os.WriteFile(filepath.Join(d, files[i]), []byte(files[i+1]), 0o600))
		}
		return d
	}
	a := dir("00", "abc", "03", "def", "durable", "x")
	require.NoError(t, sameFiles([]string{a, dir("00", "abc", "03", "def"), dir("03", "def", "06", "\x00\x00")}))
	require.NoError(t, sameFiles([]string{dir("00", "abc", "03", "def", "06", "\x00"), a}))
	require.Error(t, sameFiles([]string{a, dir("00", "abc", "03", "deg")}), "other bytes")
	require.Error(t, sameFiles([]string{a, dir("00", "abc")}), "one is behind")
	require.Error(t, sameFiles([]string{dir("00", "abc"), a}), "the other is behind")
	require.Error(t, sameFiles([]string{a, dir("06", "ghi")}), "nothing in common")
}
