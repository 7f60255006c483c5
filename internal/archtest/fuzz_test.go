package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	decoder    = regexp.MustCompile(`(?m)^func (?:\([a-z]+ \*?[A-Za-z]+\) )?(Decode[A-Za-z]*)\([a-z]+ \[\]byte`)
	fuzzTarget = regexp.MustCompile(`(?m)^func Fuzz`)
)

// TestDecodersAreFuzzed: every exported decoder of bytes is named in the tests of its package, and that has fuzz
// targets.
func TestDecodersAreFuzzed(t *testing.T) {
	root := filepath.Join("..", "..")
	names, tests, fuzzed := map[string][]string{}, map[string]string{}, map[string]bool{} // by folder
	for _, top := range []string{"broker", "controller", "internal", "proxy", "store"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			text, err := os.ReadFile(path)
			dir := filepath.Dir(path)
			switch {
			case err != nil:
			case !strings.HasSuffix(path, "_test.go"):
				for _, m := range decoder.FindAllStringSubmatch(string(text), -1) {
					names[dir] = append(names[dir], m[1])
				}
			default:
				tests[dir] += string(text)
				fuzzed[dir] = fuzzed[dir] || fuzzTarget.Match(text)
			}
			return err
		}))
	}
	require.Greater(t, len(names), 15)
	for dir, list := range names {
		for _, name := range list {
			named := regexp.MustCompile(`\b` + name + `\b`).MatchString(tests[dir])
			require.True(t, fuzzed[dir] && named, "%s: %s has no fuzz target", dir, name)
		}
	}
}
